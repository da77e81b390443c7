/* Duplicates of a descriptor share one offset and its flags, another opening of the file does not; close-on-exec is each one's own. */
#include "victim.h"
#include <linux/kcmp.h>

int main(void) {
    int fd = (int)must(open(victim_path("file"), O_RDWR | O_CREAT, 0644));
    must(ftruncate(fd, 100));
    int twin = (int)must(fcntl(fd, F_DUPFD_CLOEXEC, 20)), far = (int)must(dup2(fd, 700)), apart = (int)must(open(victim_path("file"), O_RDWR));
    must(lseek(fd, 33, SEEK_SET));
    ready();
    go();
    expect(lseek(twin, 0, SEEK_CUR) == 33 && lseek(far, 0, SEEK_CUR) == 33 && lseek(apart, 0, SEEK_CUR) == 0, "offsets %ld %ld %ld",
           (long)lseek(twin, 0, SEEK_CUR), (long)lseek(far, 0, SEEK_CUR), (long)lseek(apart, 0, SEEK_CUR));
    must(lseek(twin, 5, SEEK_CUR));
    expect(lseek(fd, 0, SEEK_CUR) == 38 && lseek(far, 0, SEEK_CUR) == 38 && lseek(apart, 0, SEEK_CUR) == 0, "no longer shared");
    must(fcntl(far, F_SETFL, O_APPEND | O_NONBLOCK));
    expect(fcntl(fd, F_GETFL) & O_APPEND && !(fcntl(apart, F_GETFL) & O_APPEND), "flags are not shared as they were");
    expect(fcntl(fd, F_GETFD) == 0 && fcntl(twin, F_GETFD) == FD_CLOEXEC && fcntl(far, F_GETFD) == 0, "close-on-exec");
    for (int i = 3; i < 800; i++)
        expect((fcntl(i, F_GETFD) >= 0) == (i == fd || i == twin || i == far || i == apart), "descriptor %d", i);
    ok();
}
