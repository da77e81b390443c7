/* A memfd that its maker still writes through an old mapping, sealed for everybody else; readers cannot become writers. */
#include "victim.h"

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 16
#endif

int main(void) {
    int fd = (int)must(memfd_create("region", MFD_ALLOW_SEALING)), seals = F_SEAL_FUTURE_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
    int plain = (int)must(memfd_create("plain", MFD_ALLOW_SEALING)), whole = (int)must(memfd_create("whole", MFD_ALLOW_SEALING));
    int never = (int)must(memfd_create("never", 0));
    char path[64];
    must(ftruncate(fd, 4 * 4096));
    must(ftruncate(plain, 4096));
    must(write(whole, "whole", 5));
    volatile char *writer = mmap(NULL, 4 * 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    must(fcntl(fd, F_ADD_SEALS, seals));
    must(fcntl(whole, F_ADD_SEALS, F_SEAL_WRITE));
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    int reader_fd = (int)must(open(path, O_RDONLY));
    volatile char *reader = mmap(NULL, 4 * 4096, PROT_READ, MAP_SHARED, reader_fd, 0);
    snprintf(path, sizeof path, "/proc/self/fd/%d", plain);
    int plain_reader = (int)must(open(path, O_RDONLY));
    volatile char *view = mmap(NULL, 4096, PROT_READ, MAP_SHARED, plain_reader, 0);
    volatile char *plain_writer = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, plain, 0);
    char *own = mmap(NULL, 4 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    close(reader_fd);
    writer[100] = 'a';
    own[4096] = 'p';
    ready();
    go();
    char word = (char)(own_number() % 20 + 'b');
    writer[100] = word;
    writer[4096] = 'w';
    expect(reader[100] == word && own[100] == word, "what the maker writes is not seen");
    expect(own[4096] == 'p' && reader[4096] == 'w', "a private page");
    expect(mprotect((void *)reader, 4096, PROT_READ | PROT_WRITE) == -1 && errno == EACCES, "the reader can become a writer");
    expect(mprotect((void *)view, 4096, PROT_READ | PROT_WRITE) == -1 && errno == EACCES, "the other reader can become a writer");
    plain_writer[0] = word;
    expect(view[0] == word, "the plain one");
    expect(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED && errno == EPERM, "it can be mapped for writing");
    expect(write(fd, "x", 1) == -1 && errno == EPERM, "it can be written");
    expect(fcntl(fd, F_GET_SEALS) == seals && fcntl(whole, F_GET_SEALS) == F_SEAL_WRITE, "seals");
    expect(fcntl(never, F_GET_SEALS) == F_SEAL_SEAL && fcntl(never, F_ADD_SEALS, F_SEAL_GROW) == -1, "one that cannot be sealed can");
    expect(pwrite(plain, "y", 1, 9) == 1 && view[9] == 'y', "written by its descriptor");
    must(mprotect((void *)writer, 4096, PROT_READ));
    must(mprotect((void *)writer, 4096, PROT_READ | PROT_WRITE));
    ok();
}
