/*
 * Stands in for bunshin-init: lets it run under a seccomp filter that shows each of its system calls to a process beside it, which
 * counts them and makes chosen ones fail. So the engine is watched from outside, as it is; nothing in it knows.
 *
 * Only system calls made by the executable itself, and by the code it leaves at 0x200000000 in processes that are being
 * rebuilt, are shown. Beside this program lie "real", the executable, and "board", a file that is shared with the test:
 * struct board.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV
#define SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV (1UL << 5)
#endif

#define LOGGED 65536
#define TEXT_END 0x800000u /* more than the text of the executable: it is static and not relocated */

enum action { ACTION_FAIL, ACTION_KILL, ACTION_STOP };

struct board {
    volatile uint32_t on;     /* the test: calls count */
    volatile uint32_t fired;  /* how often the rule was applied */
    volatile uint32_t logged; /* how many calls are in the log */
    volatile int32_t number;  /* the rule: this system call… */
    volatile uint64_t place;  /* …made here… */
    volatile int32_t skip;    /* …after so many */
    volatile int32_t error;
    volatile int32_t action, pid; /* enum action; who was hit */
    volatile int32_t spared[2];   /* processes that are not killed */
    struct {
        int32_t number, pid;
        uint64_t place;
    } log[LOGGED];
};

static void watch(int listener, struct board *board) {
    for (;;) {
        struct seccomp_notif call;
        struct seccomp_notif_resp answer = {0};
        struct pollfd poll_listener = {.fd = listener, .events = POLLIN};
        if (poll(&poll_listener, 1, -1) < 0 && errno != EINTR)
            _exit(1);
        if (poll_listener.revents & POLLHUP)
            _exit(0); /* nobody is left */
        memset(&call, 0, sizeof call);
        if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &call) != 0)
            continue;
        answer.id = call.id;
        answer.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
        if (board->on) {
            uint32_t at = board->logged;
            if (at < LOGGED) {
                board->log[at].number = call.data.nr;
                board->log[at].pid = (int32_t)call.pid;
                board->log[at].place = call.data.instruction_pointer;
                board->logged = at + 1;
            }
            bool spared = board->action != ACTION_FAIL && ((int32_t)call.pid == board->spared[0] || (int32_t)call.pid == board->spared[1]);
            if (!board->fired && !spared && board->number == call.data.nr && board->place == call.data.instruction_pointer && board->skip-- == 0) {
                board->fired = 1;
                board->pid = (int32_t)call.pid;
                if (board->action == ACTION_FAIL) {
                    answer.flags = 0;
                    answer.error = -board->error;
                } else
                    kill((pid_t)call.pid, board->action == ACTION_KILL ? SIGKILL : SIGSTOP);
            }
        }
        ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &answer);
    }
}

static int listen_to_myself(void) {
    const uint32_t low = offsetof(struct seccomp_data, instruction_pointer), high = low + 4;
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, high),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 2, 3, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, low),
        BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, TEXT_END, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof code / sizeof *code, code};
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER | SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV,
                        &program);
}

static int receive(int socket) {
    char byte;
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control;
    struct iovec part = {&byte, 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    if (recvmsg(socket, &message, MSG_CMSG_CLOEXEC) != 1 || !CMSG_FIRSTHDR(&message))
        _exit(1);
    return *(int *)(void *)CMSG_DATA(CMSG_FIRSTHDR(&message));
}

static void send_it(int socket, int fd) {
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {.header = {.cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS}};
    struct iovec part = {"", 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    memcpy(CMSG_DATA(&control.header), &fd, sizeof fd);
    if (sendmsg(socket, &message, 0) != 1)
        _exit(1);
}

int main(int argc, char **argv) {
    char real[4096], path[4096];
    int pair[2];
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 16);
    char *name = length < 0 ? NULL : memrchr(path, '/', (size_t)length);
    if (!name)
        return 1;
    strcpy(name, "/real");
    strcpy(real, path);
    strcpy(name, "/board");
    if (argc > 1 && !strcmp(argv[1], "probe"))
        return execv(real, argv);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    struct board *board = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (board == MAP_FAILED || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
        return 1;
    pid_t child = fork();
    if (child == 0) {
        if (fork() != 0) /* nobody's child, so that the keeper never meets it */
            _exit(0);
        int listener = receive(pair[1]);
        syscall(SYS_close_range, 0, (unsigned)listener - 1, 0);
        syscall(SYS_close_range, (unsigned)listener + 1, ~0U, 0);
        setsid();
        watch(listener, board);
    }
    waitpid(child, NULL, 0);
    int listener = listen_to_myself();
    if (listener < 0) {
        perror("seccomp");
        return 1;
    }
    send_it(pair[0], listener);
    close(listener);
    close(fd);
    execv(real, argv);
    return 1;
}
