/* pidfds of a sibling, a thread, a child that ended, one that was reaped, and a thread that ended: each says what it should. */
#include "victim.h"
#include <poll.h>
#include <sys/pidfd.h>
#ifndef PIDFD_THREAD
#define PIDFD_THREAD O_EXCL
#endif

static int events(int fd) {
    struct pollfd look = {fd, POLLIN, 0};
    poll(&look, 1, 0);
    return look.revents;
}

static int open_pid(pid_t pid, unsigned flags) { return (int)must(syscall(SYS_pidfd_open, pid, flags)); }
static long send_to(int fd, int number) { return syscall(SYS_pidfd_send_signal, fd, number, NULL, 0); }

static atomic_int tid, late_tid, over;
static void *sleeper(void *argument) {
    tid = gettid();
    while (!over)
        nap(0.005);
    return argument;
}
static void *brief(void *argument) {
    late_tid = gettid();
    while (late_tid != -1)
        nap(0.001);
    return argument;
}

int main(void) {
    pid_t elder = fork();
    if (elder == 0)
        for (;;)
            pause();
    pid_t child = fork();
    if (child == 0) { /* holds a pidfd of one who is neither its child nor its parent */
        int of_elder = open_pid(elder, PIDFD_NONBLOCK), of_us = open_pid(getppid(), 0);
        must(fcntl(of_elder, F_SETFD, 0));
        while (access(victim_path("go"), F_OK) != 0)
            nap(0.01);
        expect(fcntl(of_elder, F_GETFD) == 0 && fcntl(of_us, F_GETFD) == FD_CLOEXEC, "flags");
        expect(fcntl(of_elder, F_GETFL) & O_NONBLOCK && !(fcntl(of_us, F_GETFL) & O_NONBLOCK), "blocking");
        expect(events(of_elder) == 0 && events(of_us) == 0, "they ended");
        must(send_to(of_us, 0));
        must(send_to(of_elder, SIGTERM));
        for (int i = 0; !events(of_elder); i++, nap(0.01))
            expect(i < 300, "the elder lives");
        _exit(0);
    }
    pid_t zombie = fork();
    if (zombie == 0)
        _exit(4);
    int of_zombie = open_pid(zombie, 0);
    pid_t reaped = fork();
    if (reaped == 0)
        _exit(5);
    int of_reaped = open_pid(reaped, PIDFD_NONBLOCK), twin = dup(of_reaped);
    must(waitpid(reaped, NULL, 0));
    pthread_t threads[2];
    must(-pthread_create(&threads[0], NULL, sleeper, NULL));
    must(-pthread_create(&threads[1], NULL, brief, NULL));
    while (!tid || !late_tid)
        nap(0.001);
    int of_thread = open_pid(tid, PIDFD_THREAD), of_late = open_pid(late_tid, PIDFD_THREAD), of_self = open_pid(getpid(), 0);
    late_tid = -1;
    must(-pthread_join(threads[1], NULL));
    while (events(of_zombie) != POLLIN)
        nap(0.005);
    ready();
    go();
    expect(events(of_zombie) == POLLIN, "the zombie: %x", events(of_zombie));
    must(send_to(of_zombie, 0));
    siginfo_t info = {0};
    must(waitid(P_PIDFD, (id_t)of_zombie, &info, WEXITED));
    expect(info.si_pid == zombie && info.si_status == 4, "the zombie ended with %d", info.si_status);
    expect(send_to(of_zombie, 0) == -1 && errno == ESRCH, "it can be signalled");
    expect(events(of_reaped) & (POLLIN | POLLHUP), "the reaped one: %x", events(of_reaped));
    expect(send_to(of_reaped, 0) == -1 && errno == ESRCH && send_to(twin, 0) == -1 && errno == ESRCH, "the reaped one can be signalled");
    expect(waitid(P_PIDFD, (id_t)of_reaped, &info, WEXITED) == -1 && errno == ECHILD, "the reaped one can be reaped");
    expect(fcntl(of_reaped, F_GETFL) & O_NONBLOCK, "flags of the reaped one");
    expect(send_to(of_late, 0) == -1 && errno == ESRCH, "the thread that ended can be signalled");
    expect(events(of_thread) == 0 && events(of_self) == 0, "the thread ended");
    must(send_to(of_thread, 0));
    over = 1;
    must(-pthread_join(threads[0], NULL));
    for (int i = 0; !events(of_thread); i++, nap(0.01))
        expect(i < 300, "nobody says that the thread ended");
    expect(events(of_self) == 0, "we ended");
    int status;
    must(waitpid(elder, &status, 0));
    expect(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM, "the elder: %x", status);
    child_ends_well(child);
    ok();
}
