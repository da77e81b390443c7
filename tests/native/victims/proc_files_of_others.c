/* Files of /proc held open tell of the same processes: of a child, a thread, the mounts, one that is dead; also from a working directory there. */
#include "victim.h"
#include <dirent.h>
#include <sys/epoll.h>

static int thread_id;

static void *other_thread(void *go_on) {
    thread_id = gettid();
    prctl(PR_SET_NAME, "the other");
    while (!atomic_load((atomic_int *)go_on))
        nap(0.01);
    return NULL;
}

static int of(pid_t pid, const char *name, int flags) {
    char path[128];
    snprintf(path, sizeof path, "/proc/%d/%s", pid, name);
    return (int)must(open(path, flags));
}

static const char *text_of(int fd) {
    static char text[65536];
    ssize_t length = pread(fd, text, sizeof text - 1, 0);
    text[length < 0 ? 0 : length] = '\0';
    return text;
}

int main(void) {
    atomic_int go_on = 0;
    pthread_t thread;
    char name[64], line[4096];
    expect(pthread_create(&thread, NULL, other_thread, &go_on) == 0, "no thread");
    while (!thread_id)
        nap(0.001);
    pid_t child = (pid_t)must(fork()), dead;
    if (!child)
        for (;;)
            pause();
    int ready_pipe[2];
    must(pipe(ready_pipe));
    if (!(dead = (pid_t)must(fork())))
        for (;;)
            pause();
    int status = of(child, "status", O_RDONLY), gone = of(dead, "status", O_RDONLY), gone_directory = of(dead, ".", O_RDONLY | O_DIRECTORY);
    must(kill(dead, SIGKILL));
    must(waitpid(dead, NULL, 0));
    snprintf(name, sizeof name, "task/%d/comm", thread_id);
    int comm = of(getpid(), name, O_RDWR), twice = (int)must(fcntl(comm, F_DUPFD_CLOEXEC, 40));
    int directory = of(child, ".", O_PATH | O_DIRECTORY), parent = of(1, "comm", O_RDONLY), memory = of(getpid(), "mem", O_RDWR);
    /* The memory map, read to the third line. */
    FILE *maps = fopen("/proc/self/maps", "re");
    setvbuf(maps, NULL, _IONBF, 0);
    for (int i = 0; i < 3; i++)
        expect(fgets(line, sizeof line, maps), "no line");
    char third[4096], *rest;
    snprintf(third, sizeof third, "%s", line);
    /* A listing of descriptors that was begun. */
    int listing = of(getpid(), "fd", O_RDONLY | O_DIRECTORY);
    for (int i = 0; i < 60; i++)
        must(dup(0));
    char entries[1024];
    long first = must(syscall(SYS_getdents64, listing, entries, sizeof entries));
    expect(first > 0, "no entries");
    struct epoll_event event = {.events = EPOLLPRI | EPOLLERR};
    int mounts = of(getpid(), "mountinfo", O_RDONLY), epoll = (int)must(epoll_create1(0));
    must(epoll_ctl(epoll, EPOLL_CTL_ADD, mounts, &event));
    int net = of(getpid(), "ns/net", O_RDONLY), user = of(child, "ns/user", O_RDONLY);
    must(chdir("/proc/self/task"));
    volatile uint64_t word = pattern(5);
    ready();
    go();
    word = pattern(6);
    snprintf(name, sizeof name, "\nPid:\t%d\n", child);
    expect(strstr(text_of(status), name), "status: %.200s", text_of(status));
    expect(pread(gone, line, 10, 0) == -1 && errno == ESRCH, "the dead one's status can be read");
    expect(openat(gone_directory, "status", O_RDONLY) == -1, "the dead one is back");
    expect(!strcmp(text_of(comm), "the other\n") && fcntl(twice, F_GETFD) == FD_CLOEXEC, "the thread is %s", text_of(comm));
    must(write(twice, "renamed", 7));
    expect(!strcmp(text_of(comm), "renamed\n"), "the thread is now %s", text_of(comm));
    int inner = (int)must(openat(directory, "stat", O_RDONLY));
    expect(atoi(text_of(inner)) == child, "the directory is that of %s", text_of(inner));
    expect(!strcmp(text_of(parent), "bunshin-init\n"), "pid 1 is %s", text_of(parent));
    uint64_t seen = 0;
    must(pread(memory, &seen, sizeof seen, (off_t)(uintptr_t)&word));
    expect(seen == pattern(6), "memory is another's");
    expect(fgets(line, sizeof line, maps), "the map has ended");
    expect(strtoull(line, &rest, 16) >= strtoull(strchr(third, '-') + 1, NULL, 16) && *rest == '-', "after %s comes %s", third, line);
    int count = 0, last = -1;
    for (long length = first, at = 0; length > 0; length = must(syscall(SYS_getdents64, listing, entries, sizeof entries)))
        for (at = 0; at < length; at += *(unsigned short *)(void *)(entries + at + 16)) {
            int number = atoi(entries + at + 19);
            count++;
            if (entries[at + 19] == '.')
                continue;
            expect(number > last, "descriptor %d after %d", number, last);
            last = number;
        }
    expect(count > 60, "%d entries", count);
    expect(strstr(text_of(mounts), " / / "), "mountinfo: %.200s", text_of(mounts));
    expect(epoll_wait(epoll, &event, 1, 0) == 0, "the mounts have changed");
    struct stat one, other;
    must(fstat(net, &one));
    must(stat("/proc/self/ns/net", &other));
    expect(one.st_ino == other.st_ino, "another network");
    must(fstat(user, &one));
    must(stat("/proc/self/ns/user", &other));
    expect(one.st_ino == other.st_ino, "another user namespace");
    snprintf(name, sizeof name, "%d/comm", thread_id);
    expect(access(name, F_OK) == 0, "the working directory is elsewhere");
    atomic_store(&go_on, 1);
    pthread_join(thread, NULL);
    must(kill(child, SIGKILL));
    must(waitpid(child, NULL, 0));
    expect(pread(status, line, 10, 0) == -1 && errno == ESRCH, "the child's file lives on");
    ok();
}
