/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The fields of kernel structures that are read. Only names and types matter: when the program is
 * loaded, CO-RE replaces each offset by that of the running kernel, from its BTF.
 */
#ifndef REAP_KERNEL_H
#define REAP_KERNEL_H

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef signed char __s8;
typedef short __s16;
typedef int __s32;
typedef long long __s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;

/* From the kernel's bpf.h, which would include everything else. */
enum bpf_map_type {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PERCPU_HASH = 5,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
};
enum {
	BPF_ANY = 0,
	BPF_NOEXIST = 1,
};

#define CORE __attribute__((preserve_access_index))

struct gendisk {
	char disk_name[32];
} CORE;

struct request_queue {
	struct gendisk *disk; /* since 5.15 */
} CORE;

struct blk_mq_hw_ctx {
	unsigned int queue_num;
	unsigned short type; /* enum hctx_type */
} CORE;

struct request {
	struct request_queue *q;
	struct blk_mq_hw_ctx *mq_hctx;
	unsigned int cmd_flags; /* operation in the low 8 bits, then flags */
	unsigned int __data_len;
} CORE;

struct irqaction {
	struct irqaction *next; /* the next handler of a shared line */
} CORE;

/* The number of the flag differs between kernels; its name changed in 5.16. */
enum req_flag_bits {
	__REQ_POLLED = 22,
	__REQ_HIPRI = 25,
};

/* enum hctx_type: the queue is for polling, its interrupt is never enabled. */
#define HCTX_TYPE_POLL 2

/* Of the softirqs' fixed numbers, the two in which block drivers complete. */
#define SOFTIRQ_BLOCK 4
#define SOFTIRQ_IRQ_POLL 5

#define REQ_OP_MASK 0xff

#endif
