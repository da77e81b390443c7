/* The umask counts for files made after the fork. */
#include "victim.h"

int main(void) {
    umask(027);
    ready();
    go();
    struct stat info;
    int fd = (int)must(open(victim_path("made"), O_CREAT | O_WRONLY | O_EXCL, 0666));
    must(fstat(fd, &info));
    expect((info.st_mode & 0777) == 0640, "mode %o", info.st_mode & 0777);
    expect(umask(0) == 027, "umask");
    ok();
}
