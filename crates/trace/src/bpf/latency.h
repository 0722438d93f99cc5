/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Mode LATENCY: from issue to completion. Part of trace.bpf.c, whose maps and queue names it uses. */

SEC("tp_btf/block_rq_issue")
int BPF_PROG(reap_latency_issue, struct request *rq)
{
	__u64 key = (__u64)rq;
	struct start start = { .bytes = rq->__data_len, .op = rq->cmd_flags & REQ_OP_MASK };

	if (cfg.freq > 1) {
		struct cpu *cpu = this_cpu();

		if (!cpu || ++cpu->skipped < cfg.freq) {
			/* The request structure is reused: drop the start of a request whose completion was not seen. */
			bpf_map_delete_elem(&starts, &key);
			return 0;
		}
		cpu->skipped = 0;
	}
	start.at = bpf_ktime_get_ns();
	if (bpf_map_update_elem(&starts, &key, &start, BPF_ANY))
		__sync_fetch_and_add(&g.lost_starts, 1);
	return 0;
}

SEC("tp_btf/block_rq_complete")
int BPF_PROG(reap_latency_complete, struct request *rq, int error, unsigned int bytes)
{
	__u64 key = (__u64)rq, ns;
	struct latency_key class = {};
	struct latency_hist *h;
	struct start *start;
	struct queue *q;
	struct cpu *cpu;
	__u32 slot;

	if (bytes < rq->__data_len)
		return 0;
	start = bpf_map_lookup_elem(&starts, &key);
	if (!start)
		return 0;
	ns = bpf_ktime_get_ns() - start->at;
	class.op = start->op;
	class.size = start->bytes <= 512 ? 0 : log2_slot((start->bytes - 1) >> 9) + 1;
	/* The request is done, counted or not. */
	bpf_map_delete_elem(&starts, &key);
	cpu = this_cpu();
	if (!counting || !cpu || !rq->mq_hctx)
		return 0;
	q = queue_of(cpu, rq, (__u64)rq->mq_hctx);
	if (!q || !q->tracked)
		return 0;
	class.id = cfg.per_queue ? q->hctx : q->disk;
	h = bpf_map_lookup_elem(&latencies, &class);
	if (!h) {
		bpf_map_update_elem(&latencies, &class, &no_latencies, BPF_NOEXIST);
		h = bpf_map_lookup_elem(&latencies, &class);
		if (!h) {
			__sync_fetch_and_add(&g.lost_classes, 1);
			return 0;
		}
	}
	h->n++;
	h->sum += ns;
	if (ns > h->max)
		h->max = ns;
	slot = log2_slot(ns / cfg.unit);
	h->slots[slot < LOG2_SLOTS ? slot : LOG2_SLOTS - 1]++;
	return 0;
}
