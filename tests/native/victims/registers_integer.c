/* All general registers hold their values while a loop of nothing but instructions runs. */
#include "victim.h"

static volatile uint64_t gate;

static void *herald(void *argument) {
    nap(0.1);
    ready();
    go();
    gate = 1;
    return argument;
}

int main(void) {
    uint64_t in[13], out[13];
    for (int i = 0; i < 13; i++)
        in[i] = pattern((uint64_t)i + 1);
    pthread_t id;
    must(-pthread_create(&id, NULL, herald, NULL));
    static uint64_t *saved;
    saved = out;
    __asm__ volatile("push %%rbp\n\tmov %0, %%rsi\n\t"
                     "mov 0(%%rsi), %%rax\n\tmov 8(%%rsi), %%rbx\n\tmov 16(%%rsi), %%rcx\n\tmov 24(%%rsi), %%rdx\n\t"
                     "mov 32(%%rsi), %%rdi\n\tmov 40(%%rsi), %%r8\n\tmov 48(%%rsi), %%r9\n\tmov 56(%%rsi), %%r10\n\t"
                     "mov 64(%%rsi), %%r11\n\tmov 72(%%rsi), %%r12\n\tmov 80(%%rsi), %%r13\n\tmov 88(%%rsi), %%r14\n\t"
                     "mov 96(%%rsi), %%r15\n\tstd\n"
                     "1:\tpause\n\tcmpq $0, %1\n\tje 1b\n\t"
                     "mov %2, %%rsi\n\t"
                     "mov %%rax, 0(%%rsi)\n\tmov %%rbx, 8(%%rsi)\n\tmov %%rcx, 16(%%rsi)\n\tmov %%rdx, 24(%%rsi)\n\t"
                     "mov %%rdi, 32(%%rsi)\n\tmov %%r8, 40(%%rsi)\n\tmov %%r9, 48(%%rsi)\n\tmov %%r10, 56(%%rsi)\n\t"
                     "mov %%r11, 64(%%rsi)\n\tmov %%r12, 72(%%rsi)\n\tmov %%r13, 80(%%rsi)\n\tmov %%r14, 88(%%rsi)\n\t"
                     "mov %%r15, 96(%%rsi)\n\tpushfq\n\tpop %%rax\n\tcld\n\tpop %%rbp\n\t"
                     "mov %%rax, %3\n\t"
                     :
                     : "r"(in), "m"(gate), "m"(saved), "m"(gate)
                     : "rax", "rbx", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "memory", "cc");
    expect(gate & 0x400, "the direction flag is lost: %lx", (unsigned long)gate);
    for (int i = 0; i < 13; i++)
        expect(in[i] == out[i], "register %d holds %lx, not %lx", i, (unsigned long)out[i], (unsigned long)in[i]);
    ok();
}
