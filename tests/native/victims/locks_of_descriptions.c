/* Locks of open file descriptions (OFD): shared by duplicates, not by other openings. */
#include "victim.h"

int main(void) {
    int fd = (int)must(open(victim_path("file"), O_RDWR | O_CREAT, 0644)), twin = (int)must(dup(fd)), other = (int)must(open(victim_path("file"), O_RDWR));
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 10, .l_len = 5};
    must(fcntl(fd, F_OFD_SETLK, &lock));
    ready();
    go();
    lock = (struct flock){.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 12, .l_len = 1};
    expect(fcntl(other, F_OFD_SETLK, &lock) == -1 && errno == EAGAIN, "the lock is gone");
    close(fd);
    expect(fcntl(other, F_OFD_SETLK, &lock) == -1, "the lock went with one of two descriptors");
    close(twin);
    must(fcntl(other, F_OFD_SETLK, &lock));
    ok();
}
