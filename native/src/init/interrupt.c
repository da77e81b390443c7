/*
 * A shell whose call timed out must give up its current command and stay. SIGINT does that for loops and builtins. While
 * it waits for a child, bash looks at how the child died: only a death by SIGINT means that the user wanted to stop the
 * whole command; after any other it goes on with the next one. The children were killed for certain, by SIGKILL, so the
 * status that the shell's wait returns is changed to SIGINT on its way: the shell then does what it does for Ctrl-C. So
 * is that of a child that ended by itself in that moment: a loop of short commands would not be heard otherwise.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "arch/x86_64.h"
#include "init/init.h"

#define INTERRUPT_PATIENCE_NS 1500000000ll
#define INTERRUPT_AGAIN_NS 50000000ll /* after this long it has gone on, or not heard: once more */

enum stop { STOP_HERE, STOP_LATE, STOP_GONE };

static enum stop wait_stop(pid_t pid, int *ret_status, int64_t deadline) {
    for (;;) {
        siginfo_t info = {0};
        if (waitid(P_PID, (id_t)pid, &info, WSTOPPED | WNOHANG | __WALL) == 0 && info.si_pid == pid) {
            *ret_status = info.si_status << 8 | 0x7f;
            return STOP_HERE;
        }
        /* Its end is left for init_reap() to find. A tracer is told of stops as well, asked for or not: one may have come just now. */
        if (waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT | WNOHANG | __WALL) != 0)
            return STOP_GONE;
        if (info.si_pid == pid && (info.si_code == CLD_TRAPPED || info.si_code == CLD_STOPPED))
            continue;
        if (info.si_pid == pid)
            return STOP_GONE;
        if (init_now() > deadline)
            return STOP_LATE;
        struct timespec pause = {0, 100000};
        nanosleep(&pause, NULL);
    }
}

static void patch_wait_status(pid_t pid, arch_registers *registers, bool interrupted) {
    if ((int64_t)ARCH_REG_RESULT(*registers) <= 0 || !ARCH_REG_ARG(*registers, 1))
        return;
    int status = 0;
    struct iovec here = {&status, sizeof status}, there = {(void *)ARCH_REG_ARG(*registers, 1), sizeof status};
    if (process_vm_readv(pid, &here, 1, &there, 1, 0) != sizeof status)
        return;
    bool killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    if (!killed && !(interrupted && (WIFEXITED(status) || WIFSIGNALED(status))))
        return;
    status = SIGINT;
    if (process_vm_writev(pid, &here, 1, &there, 1, 0) != sizeof status)
        return;
}

/* Whether the shell's standard input is the pipe that its commands come through, and not a command's redirection. */
static bool reads_commands(struct init *init, pid_t shell) {
    char path[32];
    struct stat ours, its;
    snprintf(path, sizeof path, "%d/fd/0", shell);
    return fstat(init->session[CALL_SHELL].command, &ours) == 0 && fstatat(init->proc, path, &its, 0) == 0 &&
           ours.st_dev == its.st_dev && ours.st_ino == its.st_ino;
}

bool interrupt_shell(struct init *init, pid_t shell, pid_t mark) {
    int64_t deadline = init_now() + INTERRUPT_PATIENCE_NS;
    int status;
    if (ptrace(PTRACE_SEIZE, shell, 0, PTRACE_O_TRACESYSGOOD) != 0)
        return false;
    bool home = false;
    kill(shell, SIGCONT); /* it may have stopped itself */
    if (ptrace(PTRACE_INTERRUPT, shell, 0, 0) != 0 || wait_stop(shell, &status, deadline) != STOP_HERE)
        goto out;
    kill_call_tree(init, shell, mark);
    kill(shell, SIGINT);
    int64_t again = init_now() + INTERRUPT_AGAIN_NS;
    bool entry = true, interrupted = false;
    int deliver = 0;
    while (init_now() < deadline) {
        if (ptrace(PTRACE_SYSCALL, shell, 0, deliver) != 0)
            goto out;
        for (;;) {
            enum stop stop = wait_stop(shell, &status, again < deadline ? again : deadline);
            if (stop == STOP_GONE || init_now() > deadline)
                goto out;
            if (init_now() > again) {
                kill_call_tree(init, shell, mark);
                kill(shell, SIGINT);
                again = init_now() + INTERRUPT_AGAIN_NS;
            }
            if (stop == STOP_HERE)
                break;
        }
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
            patch_wait_status(shell, &registers, interrupted);
        /* Reading its own command pipe: the command is given up. */
        if (entry && interrupted && number == SYS_read && ARCH_REG_ARG(registers, 0) == 0 && reads_commands(init, shell)) {
            home = true;
            break;
        }
    }
out:
    if (ptrace(PTRACE_DETACH, shell, 0, 0) != 0 && !home) {
        /* still running: it has to stop before it can be let go */
        ptrace(PTRACE_INTERRUPT, shell, 0, 0);
        if (wait_stop(shell, &status, init_now() + 200000000) == STOP_HERE)
            ptrace(PTRACE_DETACH, shell, 0, 0);
    }
    if (home)
        kill(shell, SIGCHLD); /* thrown out of its wait, it may have missed one: it reaps whatever has ended */
    return home;
}
