/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Shared with the loader (src/ebpf/layout.rs). Change both together; each side asserts the sizes. */
#ifndef REAP_SHARED_H
#define REAP_SHARED_H

enum mode {
	COMPLETIONS = 0,
	DELAY = 1,
	RATE = 2,
	LATENCY = 3,
};

/* The context in which a completion ran. */
enum context {
	IN_INTERRUPT = 0,
	IN_SOFTIRQ = 1, /* block or irq-poll softirq on the CPU that took the interrupt */
	OTHER_CPU = 2, /* softirq on another CPU, to which the interrupt's CPU sent the request */
	POLLED = 3,
	ELSEWHERE = 4, /* threads (threaded interrupts, software drivers) and other softirqs */
	CONTEXTS = 5,
};

#define DISK_NAME 32
#define FILTERS 8
#define LINEAR_SLOTS 129 /* 0..127 exactly, the last: 128 and more */
#define LOG2_SLOTS 40

/* Fixed before the program is loaded, so the verifier drops the branches that are off. */
struct config {
	__u32 mode;
	__u32 freq; /* one in `freq` cycles (or requests) is sampled; never 0 */
	__u32 unit; /* nanoseconds per unit of the log2 histograms */
	__u32 per_queue;
	__u32 max_lines;
	__u32 max_queues;
	__u32 filters; /* how many of `filter` are in use; 0: every device */
	__u32 pad;
	char filter[FILTERS][DISK_NAME];
};

struct globals {
	__u64 sampled_cycles; /* how many are open now: not a running total */
	__u32 next_slot; /* next free line slot; line slot 0 belongs to no line */
	__u32 next_queue; /* next free index in `queues` */
	__u64 lost_lines; /* interrupts not counted because all line slots were in use */
	__u64 lost_queues; /* completions not counted because `queues` was full */
	__u64 lost_starts; /* requests not counted because `starts` was full */
	__u64 lost_classes; /* requests not counted because `latencies` was full */
};

/* From an interrupt to the next one of the same line. */
struct cycle {
	__u64 at; /* time of the interrupt in ns, in mode DELAY only */
	__u64 visit; /* serial number, per CPU, of the softirq visit that it interrupted; 0: none */
	__u32 count; /* completions so far */
	__u32 cpu;
	__u32 sampled;
	__u32 pad;
};

/*
 * By interrupt number. One CPU at a time runs a line's handler. cycle[seq & 1] is open; the cycle before it is in the other
 * element and still gets late completions.
 */
struct line {
	__u64 seq; /* interrupts */
	__u32 slot; /* index of its counters; 0: not known to belong to a block device */
	__u32 ignored; /* 1: the line is not selected */
	__u32 skipped; /* cycles since the last sampled one */
	__u32 pad;
	struct cycle cycle[2];
	__u64 pad2[5];
};

/* A hardware queue of a disk. */
struct queue {
	__u64 hctx;
	__u64 disk;
	char name[DISK_NAME];
	__u32 number;
	__u32 polled;
	__u32 tracked;
	__u32 irq; /* number + 1; 0: not known */
	__u32 candidate; /* number + 1 of the line that may be the queue's */
	__u32 votes; /* consecutive visits that only `candidate` can have raised */
	__u64 cycle_seq; /* with per_queue: the cycle being counted */
	__u32 cycle_count;
	__u32 voted_in; /* the softirq visit of the last vote */
};

struct queue_name {
	char disk[DISK_NAME];
	__u32 number;
	__u32 pad;
};

/* Per CPU and line. */
struct line_stats {
	__u64 interrupts;
	__u64 hard_ns;
	__u64 soft_ns;
};

/* Per CPU and hardware queue. */
struct queue_stats {
	__u64 contexts[CONTEXTS];
};

struct hist {
	__u64 n;
	__u64 sum; /* of completions, or of ns */
	__u64 max;
	__u64 slots[LINEAR_SLOTS];
};

struct latency_key {
	__u64 id; /* disk, or hctx with per_queue */
	__u16 op;
	__u16 size; /* log2 of the size in 512-byte units, rounded up */
	__u32 pad;
};

struct latency_hist {
	__u64 n;
	__u64 sum; /* ns */
	__u64 max; /* ns */
	__u64 slots[LOG2_SLOTS];
};

_Static_assert(sizeof(struct config) == 32 + FILTERS * DISK_NAME, "layout.rs");
_Static_assert(sizeof(struct globals) == 48, "layout.rs");
_Static_assert(sizeof(struct line) == 128, "layout.rs");
_Static_assert(sizeof(struct queue) == 88, "layout.rs");
_Static_assert(sizeof(struct queue_name) == 40, "layout.rs");
_Static_assert(sizeof(struct hist) == 24 + 8 * LINEAR_SLOTS, "layout.rs");
_Static_assert(sizeof(struct latency_key) == 16, "layout.rs");
_Static_assert(sizeof(struct latency_hist) == 24 + 8 * LOG2_SLOTS, "layout.rs");

#endif
