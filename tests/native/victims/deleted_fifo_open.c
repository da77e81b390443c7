/* A FIFO whose name is gone still leads from one to the other, with what is in it. */
#include "victim.h"

int main(void) {
    must(mkfifo(victim_path("fifo"), 0600));
    int reads = (int)must(open(victim_path("fifo"), O_RDONLY | O_NONBLOCK)), writes = (int)must(open(victim_path("fifo"), O_WRONLY));
    int both = (int)must(open(victim_path("fifo"), O_RDWR));
    must(write(writes, "first ", 6));
    must(unlink(victim_path("fifo")));
    ready();
    go();
    must(write(both, "second", 6));
    char text[32] = "";
    must(read(reads, text, 31));
    expect(!strcmp(text, "first second"), "it held %s", text);
    struct stat one, other;
    must(fstat(reads, &one));
    must(fstat(writes, &other));
    expect(S_ISFIFO(one.st_mode) && one.st_ino == other.st_ino, "there are two of them");
    must(close(writes));
    must(close(both));
    expect(read(reads, text, 31) == 0, "it has writers still");
    ok();
}
