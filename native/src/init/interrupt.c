/*
 * A shell whose call timed out must give up its current command and stay. SIGINT does that for loops and builtins. While
 * it waits for a child, bash looks at how the child died: only a death by SIGINT means that the user wanted to stop the
 * whole command; after any other it goes on with the next one. The children were killed for certain, by SIGKILL, so the
 * status that the shell's wait returns is changed to SIGINT on its way: the shell then does what it does for Ctrl-C.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "arch/x86_64.h"
#include "init/init.h"

#define INTERRUPT_PATIENCE_NS 1500000000ll

static bool wait_stop(pid_t pid, int *ret_status, int64_t deadline) {
    for (;;) {
        pid_t got = waitpid(pid, ret_status, __WALL | WNOHANG);
        if (got == pid)
            return WIFSTOPPED(*ret_status);
        if (got < 0)
            return false;
        if (init_now() > deadline)
            return false;
        struct timespec pause = {0, 100000};
        nanosleep(&pause, NULL);
    }
}

static void patch_wait_status(pid_t pid, arch_registers *registers) {
    if ((int64_t)ARCH_REG_RESULT(*registers) <= 0 || !ARCH_REG_ARG(*registers, 1))
        return;
    int status = 0;
    struct iovec here = {&status, sizeof status}, there = {(void *)ARCH_REG_ARG(*registers, 1), sizeof status};
    if (process_vm_readv(pid, &here, 1, &there, 1, 0) != sizeof status || !WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL)
        return;
    status = SIGINT;
    if (process_vm_writev(pid, &here, 1, &there, 1, 0) != sizeof status)
        return;
}

bool interrupt_shell(struct init *init, pid_t shell, pid_t mark) {
    int64_t deadline = init_now() + INTERRUPT_PATIENCE_NS;
    int status;
    if (ptrace(PTRACE_SEIZE, shell, 0, PTRACE_O_TRACESYSGOOD) != 0)
        return false;
    bool home = false;
    if (ptrace(PTRACE_INTERRUPT, shell, 0, 0) != 0 || !wait_stop(shell, &status, deadline))
        goto out;
    kill_call_tree(init, shell, mark);
    kill(shell, SIGINT);
    bool entry = true, interrupted = false;
    int deliver = 0;
    while (init_now() < deadline) {
        if (ptrace(PTRACE_SYSCALL, shell, 0, deliver) != 0 || !wait_stop(shell, &status, deadline))
            goto out;
        deliver = 0;
        int signal = WSTOPSIG(status);
        if (status >> 16 == PTRACE_EVENT_STOP)
            continue;
        if (signal != (SIGTRAP | 0x80)) {
            deliver = signal;
            interrupted |= signal == SIGINT;
            continue;
        }
        arch_registers registers;
        if (ptrace(PTRACE_GETREGS, shell, 0, &registers) != 0)
            goto out;
        struct { /* struct ptrace_syscall_info, its first bytes */
            uint8_t op, pad[3];
            uint32_t arch;
            uint64_t ip, sp, data[8];
        } info;
        if (ptrace(0x420e /* PTRACE_GET_SYSCALL_INFO */, shell, sizeof info, &info) <= 0)
            goto out;
        entry = info.op == 1;
        long number = (long)ARCH_REG_NUMBER(registers);
        if (!entry && number == SYS_wait4)
            patch_wait_status(shell, &registers);
        /* Reading its own command pipe: the command is given up. */
        if (entry && interrupted && number == SYS_read && ARCH_REG_ARG(registers, 0) == 0) {
            home = true;
            break;
        }
    }
out:
    if (ptrace(PTRACE_DETACH, shell, 0, 0) != 0 && !home) {
        /* still running: it has to stop before it can be let go */
        ptrace(PTRACE_INTERRUPT, shell, 0, 0);
        if (wait_stop(shell, &status, init_now() + 200000000))
            ptrace(PTRACE_DETACH, shell, 0, 0);
    }
    return home;
}
