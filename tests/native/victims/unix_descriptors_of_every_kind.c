/* Descriptors of every kind on their way through a stream, datagrams and sequenced packets, most held by nobody else. */
#include "letters.h"
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>

static int watched;
static pid_t child;

static void put(int to) {
    int fd = (int)must(open(victim_path("file"), O_RDWR | O_CREAT | O_APPEND, 0600));
    must(write(fd, "0123456789", 10));
    must(lseek(fd, 4, SEEK_SET));
    post_away(to, "file", fd);
    fd = (int)must(open(victim_path("deleted"), O_RDWR | O_CREAT | O_TRUNC, 0600));
    must(unlink(victim_path("deleted")));
    must(write(fd, "nameless", 8));
    post_away(to, "deleted", fd);
    post_away(to, "directory", open("/usr", O_RDONLY | O_DIRECTORY));
    post_away(to, "path", open("/usr/bin", O_PATH));
    fd = (int)must(memfd_create("flying", MFD_CLOEXEC));
    must(write(fd, "memory", 6));
    post_away(to, "memfd", fd);
    int pipes[2], pair[2];
    must(pipe(pipes));
    must(write(pipes[1], "water", 5));
    post_away(to, "pipe", pipes[0]);
    post_away(to, "pipe end", pipes[1]);
    must(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair));
    must(write(pair[0], "inside", 6));
    post_away(to, "socket", pair[1]);
    post_away(to, "other socket", pair[0]);
    post_away(to, "event", eventfd(7, 0));
    fd = (int)must(timerfd_create(CLOCK_MONOTONIC, 0));
    must(timerfd_settime(fd, 0, &(struct itimerspec){.it_value = {0, 1000000}}, NULL));
    post_away(to, "timer", fd);
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR2);
    post_away(to, "signal", signalfd(-1, &set, 0));
    fd = (int)must(epoll_create1(0));
    must(epoll_ctl(fd, EPOLL_CTL_ADD, watched, &(struct epoll_event){EPOLLIN, {.u64 = 77}}));
    post_away(to, "epoll", fd);
    pid_t other = (pid_t)must(fork());
    if (other == 0)
        _exit(0);
    int dead = (int)syscall(SYS_pidfd_open, other, 0);
    child_ends_well(other);
    post_away(to, "pidfd", (int)syscall(SYS_pidfd_open, child, 0));
    post_away(to, "pidfd of the dead", dead);
    post_away(to, "null", open("/dev/null", O_RDWR));
    fd = (int)must(socket(AF_UNIX, SOCK_STREAM, 0));
    must(bind(fd, &(struct sockaddr){.sa_family = AF_UNIX}, sizeof(sa_family_t))); /* the kernel picks a name */
    must(listen(fd, 3));
    post_away(to, "listener", fd);
}

static void take(int from) {
    char text[32] = "";
    int fd = fetch_one(from, "file");
    expect(lseek(fd, 0, SEEK_CUR) == 4 && read(fd, text, 3) == 3 && !strcmp(text, "456"), "the file says %s", text);
    expect((fcntl(fd, F_GETFL) & (O_ACCMODE | O_APPEND)) == (O_RDWR | O_APPEND), "the file's flags are %x", fcntl(fd, F_GETFL));
    fd = fetch_one(from, "deleted");
    memset(text, 0, sizeof text);
    expect(pread(fd, text, 31, 0) == 8 && !strcmp(text, "nameless"), "the deleted file says %s", text);
    fd = fetch_one(from, "directory");
    must(faccessat(fd, "bin", F_OK, 0));
    fd = fetch_one(from, "path");
    must(faccessat(fd, "env", F_OK, 0));
    fd = fetch_one(from, "memfd");
    memset(text, 0, sizeof text);
    expect(pread(fd, text, 31, 0) == 6 && !strcmp(text, "memory"), "the memfd says %s", text);
    fd = fetch_one(from, "pipe");
    int other = fetch_one(from, "pipe end");
    must(write(other, "fall", 4));
    close(other);
    memset(text, 0, sizeof text);
    expect(read(fd, text, 31) == 9 && !strcmp(text, "waterfall"), "the pipe says %s", text);
    expect(read(fd, text, 31) == 0, "the pipe has another writer");
    fd = fetch_one(from, "socket");
    expect_text(fd, "inside");
    other = fetch_one(from, "other socket");
    must(write(fd, "back", 4));
    expect_text(other, "back");
    close(fd);
    expect(read(other, text, 31) == 0, "the other end is open");
    uint64_t count = 0;
    fd = fetch_one(from, "event");
    expect(read(fd, &count, 8) == 8 && count == 7, "the eventfd counts %llu", (unsigned long long)count);
    fd = fetch_one(from, "timer");
    expect(read(fd, &count, 8) == 8 && count == 1, "the timer ticked %llu times", (unsigned long long)count);
    fd = fetch_one(from, "signal");
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR2);
    sigprocmask(SIG_BLOCK, &set, NULL);
    raise(SIGUSR2);
    struct signalfd_siginfo info;
    expect(read(fd, &info, sizeof info) == sizeof info && info.ssi_signo == SIGUSR2, "no signal");
    fd = fetch_one(from, "epoll");
    struct epoll_event event;
    expect(epoll_wait(fd, &event, 1, 0) == 0, "the epoll has something already");
    must(write(watched, &(uint64_t){1}, 8));
    expect(epoll_wait(fd, &event, 1, 1000) == 1 && event.data.u64 == 77, "the epoll does not see it");
    must(read(watched, &count, 8));
    must(epoll_ctl(fd, EPOLL_CTL_DEL, watched, NULL));
    fd = fetch_one(from, "pidfd");
    must(syscall(SYS_pidfd_send_signal, fd, 0, NULL, 0));
    fd = fetch_one(from, "pidfd of the dead");
    expect(syscall(SYS_pidfd_send_signal, fd, 0, NULL, 0) == -1 && errno == ESRCH, "the dead lives");
    fd = fetch_one(from, "null");
    expect(read(fd, text, 1) == 0, "/dev/null");
    fd = fetch_one(from, "listener");
    struct sockaddr_un name;
    socklen_t length = sizeof name;
    must(getsockname(fd, (struct sockaddr *)&name, &length));
    must(connect((int)must(socket(AF_UNIX, SOCK_STREAM, 0)), (struct sockaddr *)&name, length));
    must(accept(fd, NULL, NULL));
    expect(fetch(from).size == -1, "there is more");
}

int main(void) {
    static const int types[] = {SOCK_STREAM, SOCK_DGRAM, SOCK_SEQPACKET};
    int pairs[3][2];
    watched = (int)must(eventfd(0, 0));
    child = (pid_t)must(fork());
    if (child == 0)
        for (;;)
            pause();
    for (int i = 0; i < 3; i++) {
        must(socketpair(AF_UNIX, types[i], 0, pairs[i]));
        put(pairs[i][0]);
    }
    ready();
    go();
    for (int i = 0; i < 3; i++)
        take(pairs[i][1]);
    kill(child, SIGKILL);
    ok();
}
