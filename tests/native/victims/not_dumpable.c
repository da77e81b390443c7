/* Processes that let nobody look at them, as those who keep keys do: one alone, one with threads, and what it gives birth to. */
#include "victim.h"

static volatile sig_atomic_t going;

static void *thread(void *argument) {
    while (!going)
        nap(0.005);
    expect(prctl(PR_GET_DUMPABLE) == 0, "a thread is dumpable");
    return argument;
}

static void look(const char *who) {
    struct stat info;
    char path[64];
    int dumpable = prctl(PR_GET_DUMPABLE);
    expect(dumpable == 0, "%s: dumpable is %d", who, dumpable);
    snprintf(path, sizeof path, "/proc/%d/maps", getpid());
    must(stat(path, &info));
    expect(info.st_uid == 0, "%s: belongs to %u", who, info.st_uid);
}

int main(void) {
    int fds[2];
    char x;
    pthread_t id;
    must(pipe(fds));
    pid_t child = fork();
    if (child == 0) {
        must(prctl(PR_SET_DUMPABLE, 0));
        must(write(fds[1], "x", 1));
        while (access(victim_path("go"), F_OK) != 0)
            nap(0.01);
        look("the child");
        must(prctl(PR_SET_DUMPABLE, 1));
        expect(prctl(PR_GET_DUMPABLE) == 1, "it stays as it is");
        _exit(0);
    }
    must(read(fds[0], &x, 1));
    must(prctl(PR_SET_DUMPABLE, 0));
    pid_t heir = fork();
    if (heir == 0) {
        while (access(victim_path("go"), F_OK) != 0)
            nap(0.01);
        look("the heir");
        _exit(0);
    }
    must(-pthread_create(&id, NULL, thread, NULL));
    ready();
    go();
    look("the parent");
    going = 1;
    must(-pthread_join(id, NULL));
    child_ends_well(child);
    child_ends_well(heir);
    pid_t late = fork();
    if (late == 0) {
        look("one born later");
        _exit(0);
    }
    child_ends_well(late);
    ok();
}
