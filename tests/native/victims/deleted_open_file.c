/* A file deleted while it is open: its content, size and offset; and one whose name was taken by another since. */
#include "victim.h"

int main(void) {
    int fd = (int)must(open(victim_path("gone"), O_RDWR | O_CREAT, 0640)), old = (int)must(open(victim_path("taken"), O_RDWR | O_CREAT, 0644));
    static char data[100000];
    memset(data, 'd', sizeof data);
    must(write(fd, data, sizeof data));
    must(lseek(fd, 99990, SEEK_SET));
    must(unlink(victim_path("gone")));
    must(write(old, "old", 3));
    must(unlink(victim_path("taken")));
    int new = (int)must(open(victim_path("taken"), O_RDWR | O_CREAT, 0644));
    must(write(new, "new one", 7));
    ready();
    go();
    struct stat info;
    char text[32] = "";
    must(fstat(fd, &info));
    expect(info.st_size == 100000 && info.st_nlink == 0 && (info.st_mode & 0777) == 0640, "size %ld, links %ld, mode %o", (long)info.st_size, (long)info.st_nlink, info.st_mode);
    expect(read(fd, text, sizeof text) == 10 && !memcmp(text, "dddddddddd", 10), "read %s", text);
    uint64_t own = own_number(), word;
    must(write(fd, &own, sizeof own));
    nap(0.05);
    must(pread(fd, &word, sizeof word, 100000));
    expect(word == own, "somebody else writes here");
    expect(access(victim_path("gone"), F_OK) == -1, "its name is back");
    memset(text, 0, sizeof text);
    must(pread(old, text, 31, 0));
    expect(!strcmp(text, "old"), "the old file holds %s", text);
    must(pread(new, text, 31, 0));
    expect(!strcmp(text, "new one"), "the new file holds %s", text);
    ok();
}
