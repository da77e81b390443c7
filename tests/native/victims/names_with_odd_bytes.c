/* A name that would spoil a careless reader, arguments written over, and an environment that has moved. */
#include "victim.h"
#include <linux/prctl.h>

extern char **environ;

static size_t read_proc(const char *name, char *ret, size_t size) {
    char path[64];
    snprintf(path, sizeof path, "/proc/self/%s", name);
    int fd = (int)must(open(path, O_RDONLY | O_CLOEXEC));
    size_t length = (size_t)must(read(fd, ret, size));
    close(fd);
    return length;
}

int main(int count, char **argv) {
    (void)count;
    static const char title[] = "worker: idle \xff (1) S 2";
    static const char moved[] = "MOVED=yes\0OTHER=\n";
    char *environment = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); /* /proc shows no other */
    memcpy(environment, moved, sizeof moved);
    char before[3][4096], after[4096];
    size_t length[3];
    static const char *const names[] = {"cmdline", "environ", "comm"};
    must(prctl(PR_SET_NAME, "a) S 1 (\n\xfe)"));
    size_t room = (size_t)(environ[0] - argv[0]);
    memset(argv[0], 0, room);
    memcpy(argv[0], title, sizeof title < room ? sizeof title : room - 1);
    char text[4096];
    unsigned long value[60] = {0};
    text[read_proc("stat", text, sizeof text - 1)] = '\0';
    char *at = strrchr(text, ')') + 4; /* field 4 */
    for (int i = 4; i <= 52; i++)
        value[i] = strtoul(at, &at, 10);
    struct prctl_mm_map map = {
        .start_code = value[26], .end_code = value[27], .start_data = value[45], .end_data = value[46], .start_brk = value[47],
        .brk = (unsigned long)sbrk(0), .start_stack = value[28], .arg_start = value[48], .arg_end = value[49],
        .env_start = (unsigned long)environment, .env_end = (unsigned long)environment + sizeof moved, .exe_fd = (unsigned)-1,
    };
    must(prctl(PR_SET_MM, PR_SET_MM_MAP, &map, sizeof map, 0));
    for (int i = 0; i < 3; i++)
        length[i] = read_proc(names[i], before[i], sizeof before[i]);
    expect(length[1] == sizeof moved, "the scene is not set: %zu", length[1]);
    ready();
    go();
    for (int i = 0; i < 3; i++) {
        size_t now_length = read_proc(names[i], after, sizeof after);
        expect(now_length == length[i] && !memcmp(after, before[i], now_length), "%s is %.*s", names[i], (int)now_length, after);
    }
    ok();
}
