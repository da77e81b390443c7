/* Shared mappings of deleted files: open nowhere, open for reading in another process, longer than what is mapped, replaced. */
#include "victim.h"

#define PAGE 4096ul

static char path[4200];

static int make(const char *name, char first, size_t size) {
    strcpy(path, victim_path(name));
    int fd = (int)must(open(path, O_RDWR | O_CREAT | O_EXCL, 0640));
    must(ftruncate(fd, (off_t)size));
    for (size_t at = 0; at < size; at += PAGE)
        must(pwrite(fd, &first, 1, (off_t)at));
    return fd;
}

static volatile char *map(int fd, int protection, size_t size, size_t offset) {
    volatile char *memory = mmap(NULL, size, protection, MAP_SHARED, fd, (off_t)offset);
    expect(memory != MAP_FAILED, "mmap");
    return memory;
}

int main(void) {
    int fd = make("nowhere", 'n', 8 * PAGE);
    volatile char *nowhere = map(fd, PROT_READ | PROT_WRITE, 3 * PAGE, PAGE);
    must(unlink(path));
    close(fd);
    fd = make("elsewhere", 'e', 6 * PAGE);
    volatile char *elsewhere = map(fd, PROT_READ | PROT_WRITE, 2 * PAGE, 0);
    must(unlink(path));
    int other = make("elsewhere", 'f', 6 * PAGE); /* of the same name, deleted too */
    volatile char *second = map(other, PROT_READ | PROT_WRITE, 2 * PAGE, 0);
    must(unlink(path));
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    int reader = (int)must(open(link, O_RDONLY));
    volatile char *view = map(reader, PROT_READ, PAGE, PAGE);
    close(fd);
    fd = make("replaced", 'o', 2 * PAGE);
    volatile char *old = map(fd, PROT_READ | PROT_WRITE, 2 * PAGE, 0);
    close(fd);
    fd = make("new", 'w', PAGE);
    char name[4200];
    strcpy(name, victim_path("replaced"));
    must(rename(path, name));
    volatile char *fresh = map(fd, PROT_READ | PROT_WRITE, PAGE, 0);
    pid_t child = fork();
    if (child == 0) {
        close(fd);
        go();
        for (int i = 0; nowhere[1] != 'x' || elsewhere[1] != 'y' || old[1] != 'z'; i++, nap(0.002))
            expect(i < 5000, "what the parent wrote is not seen");
        char byte;
        expect(pread(reader, &byte, 1, 1) == 1 && byte == 'y', "read by the descriptor");
        nowhere[2] = elsewhere[2] = old[2] = second[2] = 'c';
        _exit(0);
    }
    ready();
    go();
    expect(nowhere[0] == 'n' && nowhere[2 * PAGE] == 'n' && elsewhere[0] == 'e' && second[0] == 'f' && old[0] == 'o' && fresh[0] == 'w', "content");
    nowhere[1] = 'x';
    elsewhere[1] = 'y';
    old[1] = 'z';
    fresh[1] = 'q';
    elsewhere[PAGE + 7] = 'v';
    expect(view[7] == 'v', "another mapping of it");
    expect(mprotect((void *)view, PAGE, PROT_READ | PROT_WRITE) == -1 && errno == EACCES, "which can be written");
    child_ends_well(child);
    expect(nowhere[2] == 'c' && elsewhere[2] == 'c' && old[2] == 'c' && second[2] == 'c', "what the child wrote is not seen");
    struct stat info;
    char byte;
    must(fstat(reader, &info));
    expect(info.st_nlink == 0 && info.st_size == (off_t)(6 * PAGE) && (info.st_mode & 0777) == 0640, "the open one");
    expect(pread(other, &byte, 1, 5 * PAGE) == 1 && byte == 'f' && pread(reader, &byte, 1, 5 * PAGE) == 1 && byte == 'e', "beyond what is mapped");
    expect(pread(fd, &byte, 1, 1) == 1 && byte == 'q', "the new one");
    must(stat(name, &info));
    expect(info.st_size == (off_t)PAGE && access(victim_path("nowhere"), F_OK) == -1, "names");
    nowhere = mremap((void *)nowhere, 3 * PAGE, 7 * PAGE, MREMAP_MAYMOVE);
    expect(nowhere != MAP_FAILED && nowhere[6 * PAGE] == 'n' && nowhere[1] == 'x', "mapped longer");
    ok();
}
