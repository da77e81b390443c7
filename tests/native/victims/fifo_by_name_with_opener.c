/* A process blocked in opening a FIFO that nobody else has open. */
#include "blocked.h"

static void end_it(void) { must(write((int)must(open(victim_path("fifo"), O_WRONLY)), "come", 4)); }

int main(void) {
    must(mkfifo(victim_path("fifo"), 0600));
    char path[4096], text[8] = "";
    snprintf(path, sizeof path, "%s", victim_path("fifo"));
    pthread_t id = herald_start(end_it);
    int fd = open(path, O_RDONLY);
    expect(fd >= 0, "open gave %d", fd);
    expect(read(fd, text, 7) == 4 && !strcmp(text, "come"), "read %s", text);
    pthread_join(id, NULL);
    ok();
}
