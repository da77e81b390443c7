/* A listing that was begun goes on: every entry once. */
#include "victim.h"
#include <dirent.h>

int main(void) {
    must(mkdir(victim_path("dir"), 0755));
    int dir = (int)must(open(victim_path("dir"), O_RDONLY | O_DIRECTORY));
    for (int i = 0; i < 300; i++) {
        char name[32];
        snprintf(name, sizeof name, "an entry number %d", i);
        close((int)must(openat(dir, name, O_CREAT | O_WRONLY, 0644)));
    }
    struct entry {
        uint64_t inode;
        int64_t offset;
        unsigned short length;
        char type, name[];
    };
    static int seen[300];
    char buffer[2048];
    int count = 0, number;
    for (int round = 0;; round++) {
        long length = must(syscall(SYS_getdents64, dir, buffer, sizeof buffer));
        if (length == 0)
            break;
        for (long at = 0; at < length;) {
            struct entry *entry = (void *)(buffer + at);
            if (sscanf(entry->name, "an entry number %d", &number) == 1) {
                seen[number]++;
                count++;
            }
            at += entry->length;
        }
        if (round == 1) {
            ready();
            go();
        }
    }
    for (int i = 0; i < 300; i++)
        expect(seen[i] == 1, "entry %d was seen %d times, %d in all", i, seen[i], count);
    ok();
}
