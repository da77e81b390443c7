/* As programs with deadlines do it: all they have and will have is locked. So are guard pages, and what lies beyond a file's end. */
#include "memory.h"

static long locked;
static char *past_the_end, *none;
static int pages;

static void *threads_part(void *word) {
    locked = kilobytes_locked();
    pages = resident(past_the_end, 16384);
    ready();
    go();
    expect(kilobytes_locked() == locked, "%ld kB locked, not %ld", kilobytes_locked(), locked);
    expect(has_flag(&locked, " lo") && has_flag(&word, " lo"), "the program or a stack is not locked");
    expect(has_flag(none, " lo") && has_flag(past_the_end, " lo"), "what cannot be there is not locked");
    expect(resident(past_the_end, 16384) == pages, "%d pages of the file are there", resident(past_the_end, 16384));
    char *after = fresh(12288);
    expect(kilobytes_locked() == locked + 12 && has_flag(after, " lo") && !has_flag(after, " lf"), "%ld kB locked, not %ld",
           kilobytes_locked(), locked + 12);
    ok();
}

int main(void) {
    pthread_t thread;
    int fd = (int)must(open(victim_path("file"), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
    must(write(fd, "file", 4));
    past_the_end = mmap(NULL, 16384, PROT_READ, MAP_PRIVATE, fd, 0);
    none = mmap(NULL, 16384, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 65536);
    must(mlockall(MCL_CURRENT | MCL_FUTURE));
    expect(pthread_create(&thread, &small, threads_part, NULL) == 0, "pthread_create");
    pause();
}
