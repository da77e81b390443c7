/* Memory that was written and then made read-only: anonymous, and of a file. */
#include "victim.h"

int main(void) {
    char *anonymous = mmap(NULL, 8 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int fd = (int)must(open(victim_path("file"), O_RDWR | O_CREAT, 0644));
    for (int i = 0; i < 40 * 4096; i++)
        if (i % 4096 == 0) {
            char page[4096];
            memset(page, 'a' + i / 4096 % 26, sizeof page);
            must(write(fd, page, sizeof page));
        }
    char *file = mmap(NULL, 40 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    close(fd);
    memset(anonymous, 'r', 8 * 4096);
    memset(file + 3 * 4096, '1', 4096);           /* a short run */
    memset(file + 10 * 4096 + 100, '2', 25 * 4096); /* a long one */
    must(mprotect(anonymous, 8 * 4096, PROT_READ));
    must(mprotect(file, 40 * 4096, PROT_READ));
    ready();
    go();
    for (int i = 0; i < 8 * 4096; i++)
        expect(anonymous[i] == 'r', "anonymous byte %d", i);
    for (int i = 0; i < 40 * 4096; i++) {
        char want = (char)('a' + i / 4096 % 26);
        if (i / 4096 == 3)
            want = '1';
        if (i >= 10 * 4096 + 100 && i < 35 * 4096 + 100)
            want = '2';
        expect(file[i] == want, "byte %d of page %d is %c, not %c", i % 4096, i / 4096, file[i], want);
    }
    fd = (int)must(open("/proc/self/maps", O_RDONLY));
    static char maps[1 << 16];
    ssize_t length = 0;
    for (ssize_t got; (got = must(read(fd, maps + length, sizeof maps - 1 - (size_t)length))) > 0;)
        length += got;
    for (int i = 0; i < 40; i++) {
        unsigned long from, to, at = (unsigned long)file + (unsigned long)i * 4096;
        char rights[5] = "";
        for (char *line = maps; line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL)
            if (sscanf(line, "%lx-%lx %4s", &from, &to, rights) == 3 && from <= at && at < to)
                break;
        expect(!strcmp(rights, "r--p"), "page %d is %s", i, rights);
    }
    ok();
}
