/*
 * What every victim is made of: three acts. A victim sets up one state, says that it is ready, waits for "go", and then
 * checks itself. It is forked between the second act and the third, so the third is played several times over.
 *
 *   ready()   writes the file "ready"; from now on the victim may be frozen at any instant
 *   go()      waits for the file "go"; `slack` is then how many seconds forking may have taken
 *   expect()  says what is wrong, and ends the victim; the first word said counts, from whatever process of it
 *   ok()      says that all is well
 *
 * The files lie in the directory VICTIM, named absolutely: a victim may go where it likes.
 */
#pragma once
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static double slack;

static inline const char *victim_path(const char *name) {
    static _Thread_local char path[4096];
    snprintf(path, sizeof path, "%s/%s", getenv("VICTIM"), name);
    return path;
}

static inline void victim_say(const char *text) {
    int fd = open(victim_path("result"), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (fd < 0)
        return;
    char line[1024];
    int length = snprintf(line, sizeof line, "%s\n", text);
    if (write(fd, line, (size_t)length) != length)
        abort();
    close(fd);
}

#define expect(condition, ...) \
    do { \
        if (!(condition)) \
            victim_fail(__LINE__, #condition, __VA_ARGS__); \
    } while (0)

static inline _Noreturn void victim_fail(int line, const char *condition, const char *format, ...) {
    char what[700], text[900];
    va_list arguments;
    int number = errno;
    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    snprintf(text, sizeof text, "line %d: %s (%s; errno %d)", line, what, condition, number);
    victim_say(text);
    _exit(1);
}

/* A call that must not return -1. */
#define must(call) victim_must((long)(call), #call, __LINE__)
static inline long victim_must(long result, const char *call, int line) {
    if (result == -1)
        victim_fail(line, call, "failed: %s", strerror(errno));
    return result;
}

static inline void nap(double seconds) {
    struct timespec time = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
    while (clock_nanosleep(CLOCK_MONOTONIC, 0, &time, &time) == EINTR)
        ;
}

static inline double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static inline void ready(void) {
    int fd = (int)must(open(victim_path("ready"), O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
    must(write(fd, "ready\n", 6));
    close(fd);
}

static inline bool went(void) {
    char text[64];
    int fd = open(victim_path("go"), O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    ssize_t length = read(fd, text, sizeof text - 1);
    close(fd);
    text[length < 0 ? 0 : length] = '\0';
    if (!strchr(text, '\n'))
        return false;
    slack = atof(text);
    return true;
}

static inline void go(void) {
    while (!went())
        nap(0.01);
}

static inline _Noreturn void ok(void) {
    victim_say("OK");
    _exit(0);
}

/* Waits until a thread or process sleeps in the kernel. */
static inline void until_asleep(pid_t id) {
    char path[64], text[512];
    for (int calm = 0; calm < 3; nap(0.01)) {
        snprintf(path, sizeof path, "/proc/%d/stat", id);
        int fd = (int)must(open(path, O_RDONLY | O_CLOEXEC));
        ssize_t length = must(read(fd, text, sizeof text - 1));
        close(fd);
        text[length] = '\0';
        calm = strrchr(text, ')')[2] == 'S' ? calm + 1 : 0;
    }
}

/* The state letter, the parent, the group and the session of a process. */
struct kin {
    char state;
    int parent, group, session;
};

static inline struct kin kin_of(pid_t pid) {
    char path[64], text[512] = "";
    struct kin kin = {'-', 0, 0, 0};
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0 && read(fd, text, sizeof text - 1) > 0)
        sscanf(strrchr(text, ')') + 2, "%c %d %d %d", &kin.state, &kin.parent, &kin.group, &kin.session);
    close(fd);
    return kin;
}

/* A line of /proc/self/status, after its name. */
static inline const char *status_of(const char *name) {
    static _Thread_local char line[256];
    size_t length = strlen(name);
    FILE *file = fopen("/proc/self/status", "re");
    while (file && fgets(line, sizeof line, file))
        if (!strncmp(line, name, length) && line[length] == ':') {
            fclose(file);
            line[strcspn(line, "\n")] = '\0';
            return line + length + 1 + strspn(line + length + 1, " \t");
        }
    fclose(file);
    return "";
}

/* Waits for a child that must end with exit code 0. */
static inline void child_ends_well(pid_t pid) {
    int status;
    must(waitpid(pid, &status, 0));
    expect(WIFEXITED(status) && WEXITSTATUS(status) == 0, "child %d ended with status %x", pid, status);
}

/* Pseudo-random words that depend on where they stand. */
static inline uint64_t pattern(uint64_t at) {
    at = (at ^ (at >> 30)) * 0xbf58476d1ce4e5b9ull;
    at = (at ^ (at >> 27)) * 0x94d049bb133111ebull;
    return at ^ (at >> 31);
}

/* A number that differs from fork to fork: taken after the fork, from the kernel. */
static inline uint64_t own_number(void) {
    uint64_t number;
    must(syscall(SYS_getrandom, &number, sizeof number, 0));
    return number;
}
