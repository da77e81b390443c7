/* A directory held open: things can be made in it, it can be entered and listed, also through O_PATH. */
#include "victim.h"
#include <dirent.h>

int main(void) {
    must(mkdir(victim_path("dir"), 0755));
    int dir = (int)must(open(victim_path("dir"), O_RDONLY | O_DIRECTORY)), path = (int)must(open(victim_path("dir"), O_PATH));
    for (int i = 0; i < 5; i++) {
        char name[16];
        snprintf(name, sizeof name, "file%d", i);
        must(openat(dir, name, O_CREAT | O_WRONLY, 0644));
    }
    ready();
    go();
    int fd = (int)must(openat(dir, "made", O_CREAT | O_RDWR | O_EXCL, 0644));
    must(write(fd, "x", 1));
    must(mkdirat(path, "below", 0755));
    expect(fcntl(path, F_GETFL) & O_PATH, "no O_PATH any more");
    expect(access(victim_path("dir/made"), F_OK) == 0 && access(victim_path("dir/below"), F_OK) == 0, "made elsewhere");
    DIR *stream = fdopendir(dir);
    int count = 0;
    while (readdir(stream))
        count++;
    expect(count == 9, "%d entries", count);
    must(fchdir(path));
    expect(access("made", F_OK) == 0, "entered another");
    ok();
}
