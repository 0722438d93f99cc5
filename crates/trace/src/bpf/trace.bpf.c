// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Measures what completions of block requests cost, from the kernel's own tracepoints. It knows no
 * driver, and sends nothing to user space per request: every figure is a sum in a per-CPU map.
 *
 * A *cycle* of an interrupt line begins with an interrupt and ends with the next. A *visit* is one run
 * of the block or irq-poll softirq. A completion is counted in a cycle as follows:
 *  - in the line's handler: the open cycle;
 *  - in a softirq visit: the open cycle of the queue's line, unless its interrupt came during this
 *    visit: then the visit still serves the cycle before;
 *  - on another CPU, where that cannot be known: the cycle that is open at that time.
 *
 *   interrupt 1        interrupt 2        interrupt 3
 *   |--- cycle 1 ------|--- cycle 2 ------|---
 *        |-- softirq visit --|
 *             c     c     c               the third completion still belongs to cycle 1
 *
 * So the cycle before the open one may still get completions. It is entered in the histogram one
 * interrupt later.
 */
#include "kernel.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include "shared.h"

const volatile struct config cfg = { .freq = 1, .unit = 1000 };
struct globals g = { .next_slot = 1 };

/* Set after all programs are attached, cleared before the first is detached: no event is seen by some of them only. */
volatile __u32 counting SEC(".data.switch") = 0;

/* What this CPU is doing. */
struct cpu {
	__u64 visit; /* block and irq-poll softirqs begun */
	__u64 hctx; /* hardware queue of the last completion, */
	__u32 queue; /* and the queue's index in `queues` */
	__u32 irq; /* number + 1 of the line whose handler runs; 0: none */
	__u32 softirq; /* 1: a block or irq-poll softirq runs */
	__u32 raised; /* number + 1 of the line that first raised that softirq; 0: not raised */
	__u32 mixed; /* other lines interrupted between raise and visit */
	__u32 serving; /* number + 1 of the only line that this visit can serve; 0: not known */
	__u64 next_action; /* the next handler of a shared line */
	__u64 raised_at; /* mode DELAY: time in ns of the interrupt that raised the softirq; 0: its cycle is not sampled */
	/* Mode RATE, in ns: */
	__u64 irq_at; /* start of the running handler */
	__u64 mark; /* start of the visit's time that is not accounted yet, */
	__u64 stolen; /* how much of that time interrupts took, */
	__u32 visit_slot; /* and the line slot that it is charged to */
	__u32 skipped; /* requests since the last sampled one, mode LATENCY */
};

struct start {
	__u64 at;
	__u32 bytes;
	__u32 op;
};

#define MAP(kind, key_type, value_type, entries, name)                                                                             \
	struct {                                                                                                                   \
		__uint(type, kind);                                                                                                \
		__uint(max_entries, entries);                                                                                      \
		__type(key, key_type);                                                                                             \
		__type(value, value_type);                                                                                         \
	} name SEC(".maps")

/* The loader sets the sizes that depend on the machine. */
MAP(BPF_MAP_TYPE_PERCPU_ARRAY, __u32, struct cpu, 1, cpus);
MAP(BPF_MAP_TYPE_ARRAY, __u32, struct line, 1, lines);
MAP(BPF_MAP_TYPE_ARRAY, __u32, struct queue, 1, queues);
MAP(BPF_MAP_TYPE_HASH, __u64, __u32, 1, queue_index);
MAP(BPF_MAP_TYPE_HASH, struct queue_name, __u32, 1, known_lines);
MAP(BPF_MAP_TYPE_PERCPU_ARRAY, __u32, struct line_stats, 1, line_stats);
MAP(BPF_MAP_TYPE_PERCPU_ARRAY, __u32, struct queue_stats, 1, queue_stats);
MAP(BPF_MAP_TYPE_PERCPU_ARRAY, __u32, struct hist, 1, hists);
MAP(BPF_MAP_TYPE_HASH, __u64, struct start, 1, starts);
MAP(BPF_MAP_TYPE_PERCPU_HASH, struct latency_key, struct latency_hist, 1, latencies);

static struct latency_hist no_latencies; /* initial value of an entry: too large for the 512-byte stack */

static __always_inline struct cpu *this_cpu(void)
{
	__u32 zero = 0;
	return bpf_map_lookup_elem(&cpus, &zero);
}

static __always_inline struct line *line_of(__u32 irq_plus_1)
{
	__u32 irq = irq_plus_1 - 1;
	return irq_plus_1 ? bpf_map_lookup_elem(&lines, &irq) : 0;
}

static __always_inline __u32 log2_slot(__u64 v)
{
	__u32 slot = 0;

	if (v >> 32) {
		slot += 32;
		v >>= 32;
	}
	if (v >> 16) {
		slot += 16;
		v >>= 16;
	}
	if (v >> 8) {
		slot += 8;
		v >>= 8;
	}
	if (v >> 4) {
		slot += 4;
		v >>= 4;
	}
	if (v >> 2) {
		slot += 2;
		v >>= 2;
	}
	if (v >> 1)
		slot += 1;
	return slot;
}

/* Histograms of lines come first, those of queues behind them; mode DELAY has two per line. */
static __always_inline __u32 line_hist(__u32 slot, __u32 kind)
{
	return cfg.mode == DELAY ? 2 * slot + kind : slot;
}

static __always_inline __u32 queue_hist(__u32 queue)
{
	return (cfg.mode == DELAY ? 2 * cfg.max_lines : cfg.max_lines) + queue;
}

static __always_inline void record_in(__u32 index, __u64 value, __u32 slot)
{
	struct hist *h = bpf_map_lookup_elem(&hists, &index);

	if (!h)
		return;
	h->n++;
	h->sum += value;
	if (value > h->max)
		h->max = value;
	if (slot >= LINEAR_SLOTS)
		slot = LINEAR_SLOTS - 1;
	h->slots[slot]++;
}

static __always_inline void record_count(__u32 index, __u32 count)
{
	record_in(index, count, count);
}

static __always_inline void record_ns(__u32 index, __u64 ns)
{
	__u32 slot = log2_slot(ns / cfg.unit);

	record_in(index, ns, slot < LOG2_SLOTS ? slot : LOG2_SLOTS - 1);
}

static __always_inline void open_cycle(struct cycle *c, struct cpu *cpu)
{
	c->cpu = bpf_get_smp_processor_id();
	c->visit = cpu->softirq ? cpu->visit : 0;
	c->sampled = 1;
}

/* The line belongs to a block device: give it a slot and, if in its handler, its first cycle. */
static __always_inline void track(struct line *line, struct cpu *cpu)
{
	__u32 slot;

	if (line->slot)
		return;
	slot = g.next_slot < cfg.max_lines ? __sync_fetch_and_add(&g.next_slot, 1) : cfg.max_lines;
	if (slot >= cfg.max_lines) {
		__sync_fetch_and_add(&g.lost_lines, 1);
		return;
	}
	if (__sync_val_compare_and_swap(&line->slot, 0, slot) != 0)
		return; /* another CPU was first: our slot stays unused */
	if (cpu->irq && counting) {
		line->seq = 1;
		if (cfg.freq <= 1)
			open_cycle(&line->cycle[1], cpu);
		else
			line->skipped = 1;
	}
}

SEC("tp_btf/irq_handler_entry")
int BPF_PROG(reap_irq_entry, int irq, struct irqaction *action)
{
	struct cpu *cpu = this_cpu();
	__u32 key = irq, sampled = 1, again;
	struct line *line = bpf_map_lookup_elem(&lines, &key);
	struct cycle *c;

	if (!cpu || !line)
		return 0;
	/* A shared line gets here once per handler; that is one interrupt. */
	again = (__u64)action == cpu->next_action;
	cpu->next_action = (__u64)action->next;
	cpu->irq = key + 1;
	if (cpu->raised && cpu->raised != key + 1)
		cpu->mixed = 1;
	if (!line->slot || line->ignored || !counting)
		return 0;
	if (!again)
		line->seq++;
	if (cfg.mode == RATE) {
		__u32 slot = line->slot;
		struct line_stats *s = bpf_map_lookup_elem(&line_stats, &slot);

		cpu->irq_at = bpf_ktime_get_ns();
		if (s && !again)
			s->interrupts++;
		/* rate has no histogram, but needs the cycle's CPU to tell softirq from other CPU */
		line->cycle[0].cpu = line->cycle[1].cpu = bpf_get_smp_processor_id();
		return 0;
	}
	if (again)
		return 0;
	if (cfg.freq > 1) {
		sampled = ++line->skipped >= cfg.freq;
		if (sampled)
			line->skipped = 0;
	}
	c = &line->cycle[line->seq & 1]; /* the one before the last: it gets no more completions */
	if (c->sampled) {
		__u32 count = __sync_lock_test_and_set(&c->count, 0);

		if (cfg.mode == COMPLETIONS)
			record_count(line_hist(line->slot, 0), count);
		if (cfg.freq > 1 && !sampled)
			__sync_fetch_and_add(&g.sampled_cycles, -1);
	} else if (cfg.freq > 1 && sampled) {
		__sync_fetch_and_add(&g.sampled_cycles, 1);
	}
	c->sampled = 0;
	if (!sampled)
		return 0;
	open_cycle(c, cpu);
	if (cfg.mode == DELAY)
		c->at = bpf_ktime_get_ns();
	return 0;
}

SEC("tp_btf/irq_handler_exit")
int BPF_PROG(reap_irq_exit, int irq)
{
	struct cpu *cpu = this_cpu();

	if (!cpu)
		return 0;
	if (cfg.mode == RATE && cpu->irq_at) {
		struct line *line = line_of(cpu->irq);
		__u64 ns = bpf_ktime_get_ns() - cpu->irq_at;
		__u32 slot = line ? line->slot : 0;
		struct line_stats *s = bpf_map_lookup_elem(&line_stats, &slot);

		if (s)
			s->hard_ns += ns;
		if (cpu->softirq)
			cpu->stolen += ns;
		cpu->irq_at = 0;
	}
	cpu->irq = 0;
	return 0;
}

SEC("tp_btf/softirq_raise")
int BPF_PROG(reap_softirq_raise, unsigned int nr)
{
	struct cpu *cpu;
	struct line *line;

	if (nr != SOFTIRQ_BLOCK && nr != SOFTIRQ_IRQ_POLL)
		return 0;
	cpu = this_cpu();
	if (!cpu || !cpu->irq || cpu->raised)
		return 0;
	line = line_of(cpu->irq);
	if (!line || line->ignored)
		return 0;
	track(line, cpu);
	cpu->raised = cpu->irq;
	cpu->mixed = 0;
	if (cfg.mode == DELAY) {
		struct cycle *c = &line->cycle[line->seq & 1];

		cpu->raised_at = c->sampled && counting ? c->at : 0;
	}
	return 0;
}

/* Mode RATE: charges the visit's time since the mark, less interrupts, to `visit_slot`. */
static __always_inline void account_visit(struct cpu *cpu, __u64 now)
{
	__u32 slot = cpu->visit_slot;
	struct line_stats *s = bpf_map_lookup_elem(&line_stats, &slot);
	__u64 ns = now - cpu->mark;

	if (s && ns > cpu->stolen)
		s->soft_ns += ns - cpu->stolen;
	cpu->mark = now;
	cpu->stolen = 0;
}

SEC("tp_btf/softirq_entry")
int BPF_PROG(reap_softirq_entry, unsigned int nr)
{
	struct cpu *cpu;

	if (nr != SOFTIRQ_BLOCK && nr != SOFTIRQ_IRQ_POLL)
		return 0;
	cpu = this_cpu();
	if (!cpu)
		return 0;
	cpu->visit++;
	cpu->softirq = 1;
	cpu->serving = cpu->mixed ? 0 : cpu->raised;
	if (cfg.mode == DELAY && cpu->raised && cpu->raised_at && counting) {
		struct line *line = line_of(cpu->raised);

		if (line && line->slot)
			record_ns(line_hist(line->slot, 0), bpf_ktime_get_ns() - cpu->raised_at);
	}
	if (cfg.mode == RATE && counting) {
		struct line *line = line_of(cpu->raised);

		cpu->mark = bpf_ktime_get_ns();
		cpu->stolen = 0;
		cpu->visit_slot = line ? line->slot : 0;
	}
	cpu->raised = 0;
	cpu->raised_at = 0;
	return 0;
}

SEC("tp_btf/softirq_exit")
int BPF_PROG(reap_softirq_exit, unsigned int nr)
{
	struct cpu *cpu;

	if (nr != SOFTIRQ_BLOCK && nr != SOFTIRQ_IRQ_POLL)
		return 0;
	cpu = this_cpu();
	if (!cpu)
		return 0;
	if (cfg.mode == RATE && cpu->mark) {
		account_visit(cpu, bpf_ktime_get_ns());
		cpu->mark = 0;
	}
	cpu->softirq = 0;
	cpu->serving = 0;
	return 0;
}

static __always_inline int wanted(const char *name)
{
	int i, k, same;

	if (!cfg.filters)
		return 1;
	for (i = 0; i < FILTERS; i++) {
		if (i >= cfg.filters)
			break;
		same = 1;
		for (k = 0; k < DISK_NAME; k++) {
			if (name[k] != cfg.filter[i][k])
				same = 0;
			if (!name[k] || !same)
				break;
		}
		if (same)
			return 1;
	}
	return 0;
}

/* Once per hardware queue. */
static __noinline __u32 add_queue(struct request *rq, __u64 hctx)
{
	struct queue_name name = {};
	struct gendisk *disk;
	struct queue *q;
	__u32 index, *irq;

	if (!rq)
		return cfg.max_queues;
	index = g.next_queue < cfg.max_queues ? __sync_fetch_and_add(&g.next_queue, 1) : cfg.max_queues;
	q = bpf_map_lookup_elem(&queues, &index);
	if (!q)
		return cfg.max_queues;
	disk = BPF_CORE_READ(rq, q, disk);
	if (disk) /* none: an admin queue */
		bpf_probe_read_kernel_str(name.disk, sizeof(name.disk), BPF_CORE_READ(disk, disk_name));
	name.number = BPF_CORE_READ(rq, mq_hctx, queue_num);
	irq = bpf_map_lookup_elem(&known_lines, &name);
	__builtin_memcpy(q->name, name.disk, sizeof(name.disk));
	q->number = name.number;
	q->polled = BPF_CORE_READ(rq, mq_hctx, type) == HCTX_TYPE_POLL;
	q->irq = irq ? *irq + 1 : 0;
	q->disk = (__u64)disk;
	q->tracked = disk && wanted(q->name);
	q->hctx = hctx;
	if (bpf_map_update_elem(&queue_index, &hctx, &index, BPF_NOEXIST)) {
		q->hctx = 0; /* another CPU was first */
		irq = bpf_map_lookup_elem(&queue_index, &hctx);
		return irq ? *irq : cfg.max_queues;
	}
	return index;
}

static __always_inline struct queue *queue_of(struct cpu *cpu, struct request *rq, __u64 hctx)
{
	__u32 index, *known;
	struct queue *q;

	if (cpu->hctx == hctx) {
		index = cpu->queue;
	} else {
		known = bpf_map_lookup_elem(&queue_index, &hctx);
		index = known ? *known : add_queue(rq, hctx);
		cpu->hctx = hctx;
		cpu->queue = index;
	}
	q = bpf_map_lookup_elem(&queues, &index);
	if (!q)
		__sync_fetch_and_add(&g.lost_queues, 1);
	return q;
}

/* If one line alone raised the softirq for a queue's requests in four visits in a row, it is the queue's line. */
static __always_inline void learn(struct queue *q, struct cpu *cpu)
{
	if (!cpu->serving || q->polled || q->voted_in == (__u32)cpu->visit)
		return;
	q->voted_in = cpu->visit;
	if (q->candidate != cpu->serving) {
		q->candidate = cpu->serving;
		q->votes = 0;
	}
	if (++q->votes >= 4)
		q->irq = cpu->serving;
}

static __always_inline __u32 polled_flag(void)
{
	if (bpf_core_enum_value_exists(enum req_flag_bits, __REQ_POLLED))
		return 1u << bpf_core_enum_value(enum req_flag_bits, __REQ_POLLED);
	if (bpf_core_enum_value_exists(enum req_flag_bits, __REQ_HIPRI))
		return 1u << bpf_core_enum_value(enum req_flag_bits, __REQ_HIPRI);
	return 0;
}

static __always_inline void count_in_queue_cycle(struct queue *q, __u32 index, __u64 seq)
{
	__u32 count;

	if (q->cycle_seq != seq) {
		q->cycle_seq = seq;
		count = __sync_lock_test_and_set(&q->cycle_count, 0);
		if (count)
			record_count(queue_hist(index), count);
	}
	__sync_fetch_and_add(&q->cycle_count, 1);
}

/* The cycle that a completion belongs to, and its number in *seq. */
static __always_inline struct cycle *cycle_of(struct cpu *cpu, struct line *line, __u32 context, __u64 *seq)
{
	struct cycle *c;

	*seq = line->seq;
	c = &line->cycle[*seq & 1];
	if (context != IN_INTERRUPT && cpu->softirq && c->visit == cpu->visit && c->cpu == bpf_get_smp_processor_id()) {
		*seq -= 1;
		c = &line->cycle[*seq & 1];
	}
	return c;
}

static __always_inline int completed(struct request *rq)
{
	struct cpu *cpu = this_cpu();
	__u64 hctx = (__u64)rq->mq_hctx, seq;
	__u32 context = ELSEWHERE, polled = rq->cmd_flags & polled_flag(), irq, index;
	struct queue_stats *stats;
	struct line *line = 0;
	struct queue *q;
	struct cycle *c;

	if (cfg.freq > 1 && !*(volatile __u64 *)&g.sampled_cycles && !polled)
		return 0;
	if (!cpu || !hctx || !counting)
		return 0;
	q = queue_of(cpu, rq, hctx);
	if (!q || !q->tracked)
		return 0;
	index = cpu->queue;
	if (cpu->irq) {
		context = IN_INTERRUPT;
		if (q->irq != cpu->irq)
			q->irq = cpu->irq;
	} else if (cpu->softirq) {
		if (!q->irq)
			learn(q, cpu);
	} else if (polled || q->polled) {
		context = POLLED;
	}
	irq = context == POLLED ? 0 : q->irq ? q->irq : cpu->serving;
	line = line_of(irq);
	if (line) {
		if (line->ignored)
			return 0;
		track(line, cpu);
		c = cycle_of(cpu, line, context, &seq);
		if (context != IN_INTERRUPT && cpu->softirq)
			context = !seq || c->cpu == bpf_get_smp_processor_id() ? IN_SOFTIRQ : OTHER_CPU;
		if (cfg.freq > 1 && !c->sampled)
			return 0;
		if (cfg.mode == COMPLETIONS && c->sampled) {
			__sync_fetch_and_add(&c->count, 1);
			if (cfg.per_queue)
				count_in_queue_cycle(q, index, seq);
		}
		if (cfg.mode == DELAY && c->sampled && c->at)
			record_ns(cfg.per_queue ? queue_hist(index) : line_hist(line->slot, 1), bpf_ktime_get_ns() - c->at);
		if (cfg.mode == RATE && cpu->softirq && !cpu->irq && cpu->visit_slot != line->slot) {
			if (cpu->visit_slot)
				account_visit(cpu, bpf_ktime_get_ns());
			cpu->visit_slot = line->slot;
		}
	}
	stats = bpf_map_lookup_elem(&queue_stats, &index);
	if (stats && context < CONTEXTS)
		stats->contexts[context]++;
	return 0;
}

SEC("tp_btf/block_rq_complete")
int BPF_PROG(reap_complete, struct request *rq, int error, unsigned int bytes)
{
	/* Partial completions of a request get here too: count the last one only. */
	if (bytes < rq->__data_len)
		return 0;
	return completed(rq);
}

#include "latency.h"

/* Programs that read kernel memory need a GPL-compatible licence; MIT is one, under this name. */
char LICENSE[] SEC("license") = "Dual MIT/GPL";
