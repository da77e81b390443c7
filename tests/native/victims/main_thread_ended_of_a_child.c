/* A child whose main thread has left with a code of its own; two threads run on, with what they opened and mapped since. */
#include "victim.h"

static volatile sig_atomic_t heard;
static int fds[2], descriptor;
static char *memory;

static void on_signal(int number) { heard = number; }

static void *second(void *argument) {
    pthread_barrier_wait(argument);
    while (!heard)
        nap(0.005);
    return (void *)(intptr_t)heard;
}

static void *first(void *argument) {
    pthread_t other;
    pthread_barrier_t barrier;
    void *answer;
    (void)argument;
    while (kin_of(getpid()).state != 'Z')
        nap(0.002);
    must(prctl(PR_SET_NAME, "survivor"));
    /* What the dead main thread never had. */
    descriptor = (int)must(open(victim_path("kept"), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    must(write(descriptor, "kept", 4));
    memory = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < 1 << 20; i += 4096)
        *(uint64_t *)(memory + i) = pattern((uint64_t)i);
    must(chdir("/usr"));
    pthread_barrier_init(&barrier, NULL, 2);
    must(-pthread_create(&other, NULL, second, &barrier));
    pthread_barrier_wait(&barrier);
    must(write(fds[1], "x", 1));
    while (access(victim_path("go"), F_OK) != 0)
        nap(0.01);
    char word[5] = "", cwd[64];
    must(pread(descriptor, word, 4, 0));
    expect(!strcmp(word, "kept") && lseek(descriptor, 0, SEEK_CUR) == 4, "the file says %s", word);
    for (int i = 0; i < 1 << 20; i += 4096)
        expect(*(uint64_t *)(memory + i) == pattern((uint64_t)i), "memory differs at %d", i);
    expect(getcwd(cwd, sizeof cwd) && !strcmp(cwd, "/usr"), "the directory is %s", cwd);
    expect(kin_of(getpid()).state == 'Z', "the main thread runs again");
    must(-pthread_join(other, &answer));
    expect((intptr_t)answer == SIGUSR1, "the other thread heard %ld", (long)(intptr_t)answer);
    syscall(SYS_exit, 3);
    return NULL;
}

int main(void) {
    must(pipe(fds));
    pid_t child = fork();
    if (child == 0) {
        pthread_t id;
        signal(SIGUSR1, on_signal);
        must(prctl(PR_SET_NAME, "gone (main) x"));
        must(-pthread_create(&id, NULL, first, NULL));
        syscall(SYS_exit, 5);
    }
    char x, name[64], path[64];
    must(read(fds[0], &x, 1));
    ready();
    go();
    snprintf(path, sizeof path, "/proc/%d/comm", child);
    int fd = (int)must(open(path, O_RDONLY));
    name[must(read(fd, name, sizeof name - 1))] = '\0';
    expect(!strcmp(name, "gone (main) x\n"), "it is called %s", name);
    nap(0.1);
    must(kill(child, SIGUSR1));
    int status;
    must(waitpid(child, &status, 0));
    /* The last thread's code since Linux 5.17, the main thread's before. */
    expect(WIFEXITED(status) && (WEXITSTATUS(status) == 3 || WEXITSTATUS(status) == 5), "status %x", status);
    ok();
}
