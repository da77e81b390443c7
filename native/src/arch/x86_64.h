/* Everything about x86-64 that the rest asks for. Another architecture is another header of this shape. */
#ifndef BUNSHIN_ARCH_X86_64_H
#define BUNSHIN_ARCH_X86_64_H

#ifndef __x86_64__
#error "bunshin: this architecture has no header in native/src/arch yet"
#endif

#include <linux/audit.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/user.h>

#define ARCH_AUDIT AUDIT_ARCH_X86_64
#define ARCH_FOREIGN_ABI_BIT 0x40000000 /* x32 */
#define ARCH_TASK_END 0x7ffffffff000ull
#define ARCH_PAGE 4096ull
#define ARCH_RED_ZONE 128

typedef struct user_regs_struct arch_registers;

#define ARCH_REG_RESULT(r) ((r).rax)
#define ARCH_REG_NUMBER(r) ((r).orig_rax)
#define ARCH_REG_IP(r) ((r).rip)
#define ARCH_REG_SP(r) ((r).rsp)
#define ARCH_REG_ARG(r, i) (*arch_argument(&(r), i))

static inline unsigned long long *arch_argument(arch_registers *r, int i) {
    switch (i) {
    case 0:
        return &r->rdi;
    case 1:
        return &r->rsi;
    case 2:
        return &r->rdx;
    case 3:
        return &r->r10;
    case 4:
        return &r->r8;
    default:
        return &r->r9;
    }
}

/* Registers that make a stopped thread run one system call at a `syscall` instruction. */
static inline void arch_set_syscall(arch_registers *r, uint64_t ip, long number, const uint64_t argument[6]) {
    r->rax = (unsigned long long)number;
    r->orig_rax = (unsigned long long)-1;
    r->rip = ip;
    for (int i = 0; i < 6; i++)
        *arch_argument(r, i) = argument[i];
}

/* Makes a thread call a function of no return at `ip` with one argument, on a stack of ours. */
static inline void arch_set_call(arch_registers *r, uint64_t ip, uint64_t stack, uint64_t argument) {
    r->rip = ip;
    r->rsp = (stack & ~15ull) - 8; /* as after a call instruction */
    r->rdi = argument;
    r->rax = 0;
    r->orig_rax = (unsigned long long)-1;
    r->eflags &= ~0x400ull; /* direction flag */
}

#define ARCH_SYSCALL_LENGTH 2
static inline bool arch_is_syscall(const uint8_t *code) { return code[0] == 0x0f && code[1] == 0x05; }

/* Puts a thread back before the system call it was in, so that it makes the call again. */
static inline void arch_rewind_syscall(arch_registers *r) {
    r->rax = r->orig_rax;
    r->rip -= ARCH_SYSCALL_LENGTH;
    r->orig_rax = (unsigned long long)-1;
}

/* What map the kernel puts the vdso at: arch_prctl(ARCH_MAP_VDSO_64). */
#define ARCH_MAP_VDSO 0x2003
#define ARCH_GET_CPUID 0x1011
#define ARCH_SET_CPUID 0x1012
#define ARCH_TLS_FIRST 12 /* the first of three entries for set_thread_area() */

#define arch_trap() __asm__ volatile("int3")

#ifdef BUNSHIN_BLOB
static inline __attribute__((always_inline)) long arch_syscall6(long n, long a, long b, long c, long d, long e, long f) {
    long result;
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    register long r9 __asm__("r9") = f;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(n), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return result;
}
#endif

#endif
