// A plugin of QEMU's (API 3, which QEMU 10.0 has) that counts the guest's instructions, of its programs and of its kernel.
//
// The guest executes a nop that nobody else does (the program `mark`, below): a line of the counts so far goes to the file of the argument `out=`:
//   user kernel looks vain longest shortest
// of which `looks` and `vain` are looks in vain and their instructions, a part of `user`. Reap spins by looking at its completion queue, then `pause`.
// So what a program executes between two of its pauses is a look in vain, if it is short: less than LONG instructions, the kernel's included.
// `longest` is the longest of those, and `shortest` the shortest stretch that is taken for work: where the two lie close, LONG does not part them.
//
// A guest of one CPU. With -DMARK it is the guest's program instead. The declarations are those of QEMU's qemu-plugin.h, which Debian does not package.
#ifdef MARK
__attribute__((naked, noreturn)) void _start(void)
{
    __asm__("nopl 0x70616552(%rax,%rax,1)\n\tmov $60, %eax\n\txor %edi, %edi\n\tsyscall");
}
#else
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define LONG 256
#define EXPORT __attribute__((visibility("default")))

struct qemu_plugin_tb;
struct qemu_plugin_insn;
typedef struct {
    void *score;
    size_t offset;
} qemu_plugin_u64;
enum { NO_REGISTERS = 0, ADD = 0 };
typedef void callback(unsigned cpu, void *of);
void qemu_plugin_register_vcpu_tb_trans_cb(uint64_t id, void (*translated)(struct qemu_plugin_tb *block, void *of), void *of);
void qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu(struct qemu_plugin_tb *block, int op, qemu_plugin_u64 entry, uint64_t by);
void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn *one, callback *call, int flags, void *of);
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *block);
uint64_t qemu_plugin_tb_vaddr(const struct qemu_plugin_tb *block);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *block, size_t index);
size_t qemu_plugin_insn_data(const struct qemu_plugin_insn *one, void *bytes, size_t most);
void *qemu_plugin_scoreboard_new(size_t size);
uint64_t qemu_plugin_u64_sum(qemu_plugin_u64 entry);

EXPORT int qemu_plugin_version = 7;

static const uint8_t MARKING[8] = {0x0f, 0x1f, 0x84, 0x00, 'R', 'e', 'a', 'p'}, PAUSING[2] = {0xf3, 0x90};
static qemu_plugin_u64 user, kernel;
static uint64_t last, looks, vain, longest, shortest;
static FILE *out;

static void marked(unsigned cpu, void *of)
{
    (void)cpu, (void)of;
    fprintf(out, "%" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", qemu_plugin_u64_sum(user), qemu_plugin_u64_sum(kernel), looks, vain, longest, shortest);
    fflush(out);
    longest = 0, shortest = UINT64_MAX;
}

static void paused(unsigned cpu, void *of)
{
    (void)cpu, (void)of;
    uint64_t now = qemu_plugin_u64_sum(user) + qemu_plugin_u64_sum(kernel), since = now - last;
    last = now;
    if (since < LONG) {
        looks++, vain += since;
        longest = since > longest ? since : longest;
    } else {
        shortest = since < shortest ? since : shortest;
    }
}

// A block is counted as it begins: it is left in its middle only where an instruction faults.
static void translated(struct qemu_plugin_tb *block, void *of)
{
    (void)of;
    size_t instructions = qemu_plugin_tb_n_insns(block);
    int of_kernel = qemu_plugin_tb_vaddr(block) >> 63;
    qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu(block, ADD, of_kernel ? kernel : user, instructions);
    for (size_t i = 0; i < instructions && !of_kernel; i++) {
        struct qemu_plugin_insn *one = qemu_plugin_tb_get_insn(block, i);
        uint8_t bytes[8] = {0};
        size_t size = qemu_plugin_insn_data(one, bytes, sizeof bytes);
        if (size == sizeof MARKING && !memcmp(bytes, MARKING, size))
            qemu_plugin_register_vcpu_insn_exec_cb(one, marked, NO_REGISTERS, NULL);
        if (size == sizeof PAUSING && !memcmp(bytes, PAUSING, size))
            qemu_plugin_register_vcpu_insn_exec_cb(one, paused, NO_REGISTERS, NULL);
    }
}

EXPORT int qemu_plugin_install(uint64_t id, const void *info, int count, char **arguments)
{
    (void)info;
    if (count != 1 || strncmp(arguments[0], "out=", 4) || !(out = fopen(arguments[0] + 4, "w")))
        return fputs("count: out=FILE, a file that can be written\n", stderr), 1;
    user = (qemu_plugin_u64){qemu_plugin_scoreboard_new(2 * sizeof(uint64_t)), 0};
    kernel = (qemu_plugin_u64){user.score, sizeof(uint64_t)};
    shortest = UINT64_MAX;
    qemu_plugin_register_vcpu_tb_trans_cb(id, translated, NULL);
    return 0;
}
#endif
