/* A deleted file that was opened several times is still one file, with its times, holes and locks. */
#include "victim.h"

int main(void) {
    struct stat before, after;
    int both = (int)must(open(victim_path("file"), O_RDWR | O_CREAT, 0604)), reads = (int)must(open(victim_path("file"), O_RDONLY));
    int writes = (int)must(open(victim_path("file"), O_WRONLY | O_APPEND)), path = (int)must(open(victim_path("file"), O_PATH));
    const off_t far = 10ll << 30;
    must(pwrite(both, "near", 4, 0));
    must(pwrite(both, "far", 3, far));
    must(lseek(reads, 2, SEEK_SET));
    struct timespec times[2] = {{1000000000, 123000000}, {1100000000, 456000000}};
    must(futimens(both, times));
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 10, .l_len = 5};
    must(fcntl(both, F_SETLK, &lock));
    must(unlink(victim_path("file")));
    must(close((int)must(open(victim_path("file"), O_WRONLY | O_CREAT, 0644)))); /* another one has its name now */
    must(fstat(both, &before));
    ready();
    go();
    must(fstat(both, &after));
    expect(after.st_mtime == before.st_mtime && after.st_mtim.tv_nsec == before.st_mtim.tv_nsec && after.st_atime == before.st_atime, "its times are others: modified %lld.%09ld, read %lld", (long long)after.st_mtime, after.st_mtim.tv_nsec, (long long)after.st_atime);
    expect(after.st_size == far + 3 && (after.st_mode & 07777) == 0604 && after.st_nlink == 0, "size %lld, mode %o", (long long)after.st_size, after.st_mode);
    expect(after.st_blocks < 2000, "its holes are filled: %lld blocks", (long long)after.st_blocks);
    const int all[] = {reads, writes, path};
    for (int i = 0; i < 3; i++) {
        must(fstat(all[i], &before));
        expect(before.st_ino == after.st_ino && before.st_dev == after.st_dev, "%d is another file", i);
    }
    must(write(writes, "end", 3));
    char text[16] = "";
    must(read(reads, text, 2));
    expect(!strcmp(text, "ar"), "at 2 it holds %s", text);
    memset(text, 0, sizeof text);
    must(pread(reads, text, 15, far));
    expect(!strcmp(text, "farend"), "far off it holds %s", text);
    pid_t child = (pid_t)must(fork());
    if (!child) {
        lock.l_pid = 0;
        must(fcntl(both, F_GETLK, &lock));
        expect(lock.l_type == F_WRLCK && lock.l_pid == getppid() && lock.l_start == 10, "lock %d of %d", lock.l_type, lock.l_pid);
        _exit(0);
    }
    child_ends_well(child);
    must(stat(victim_path("file"), &before));
    expect(before.st_ino != after.st_ino && before.st_size == 0, "the other file was touched");
    ok();
}
