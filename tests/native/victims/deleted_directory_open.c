/* Directories that were removed while open: one inode for all who hold it, with its parent, empty for ever, and no trace around it. */
#include "victim.h"

int main(void) {
    struct stat one, other, before, after;
    must(mkdir(victim_path("top"), 0755));
    must(mkdir(victim_path("top/gone"), 0751));
    must(mkdir(victim_path("top/gone/inner"), 0700));
    int fd = (int)must(open(victim_path("top/gone"), O_RDONLY | O_DIRECTORY)), path = (int)must(open(victim_path("top/gone"), O_PATH));
    int inner = (int)must(openat(fd, "inner", O_RDONLY | O_DIRECTORY));
    int file = (int)must(openat(inner, "file", O_RDWR | O_CREAT, 0640));
    must(write(file, "beneath", 7));
    int stop[2];
    must(pipe(stop));
    pid_t child = (pid_t)must(fork());
    if (!child) {
        char byte;
        must(fchdir(fd));
        close(stop[1]);
        must(read(stop[0], &byte, 1));
        expect(chdir("..") == 0 && access("kept", F_OK) == 0, "its parent is another");
        _exit(0);
    }
    must(close((int)must(open(victim_path("top/kept"), O_CREAT | O_WRONLY, 0644))));
    nap(0.1);
    must(unlinkat(inner, "file", 0));
    must(unlinkat(fd, "inner", AT_REMOVEDIR));
    must(rmdir(victim_path("top/gone")));
    must(stat(victim_path("top"), &before));
    ready();
    go();
    must(stat(victim_path("top"), &after));
    expect(before.st_mtime == after.st_mtime && before.st_mtim.tv_nsec == after.st_mtim.tv_nsec, "its parent was changed");
    expect(access(victim_path("top/gone"), F_OK) == -1, "it is back");
    must(fstat(fd, &one));
    must(fstat(path, &other));
    expect(one.st_ino == other.st_ino && one.st_dev == other.st_dev, "there are two of it");
    expect((one.st_mode & 07777) == 0751 && one.st_mode == other.st_mode, "mode %o", one.st_mode);
    must(stat(victim_path("top"), &one));
    must(fstatat(fd, "..", &other, 0));
    expect(one.st_ino == other.st_ino, "the parent is another");
    expect(openat(fd, "new", O_CREAT | O_WRONLY, 0644) == -1 && errno == ENOENT, "something was made in it");
    expect(openat(inner, "new", O_CREAT | O_WRONLY, 0644) == -1 && errno == ENOENT, "something was made in the inner one");
    char text[64] = "", link[64];
    must(pread(file, text, sizeof text - 1, 0));
    must(fstat(file, &one));
    expect(!strcmp(text, "beneath") && one.st_nlink == 0, "the file holds %s, and has %d names", text, (int)one.st_nlink);
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    char shown[4096] = "", wanted[4200];
    must(readlink(link, shown, sizeof shown - 1));
    snprintf(wanted, sizeof wanted, "%s (deleted)", victim_path("top/gone/inner/file"));
    expect(!strcmp(shown, wanted), "it was %s", shown);
    struct {
        uint64_t inode, offset;
        unsigned short length;
        char rest[1000];
    } entry;
    expect(syscall(SYS_getdents64, fd, &entry, sizeof entry) <= 0, "it has entries");
    must(write(stop[1], "x", 1));
    child_ends_well(child);
    must(mkdir(victim_path("top/gone"), 0755)); /* the name is free */
    ok();
}
