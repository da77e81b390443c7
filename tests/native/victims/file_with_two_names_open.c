/* One file opened by two of its names, of which one is gone and one was replaced, is one file. */
#include "victim.h"

int main(void) {
    char to[4096];
    struct stat one, other;
    int first = (int)must(open(victim_path("a"), O_RDWR | O_CREAT, 0644));
    must(mkdir(victim_path("deep"), 0755));
    must(mkdir(victim_path("deep/er"), 0755));
    snprintf(to, sizeof to, "%s", victim_path("deep/er/b"));
    must(link(victim_path("a"), to));
    int second = (int)must(open(to, O_RDONLY)), third = (int)must(open(victim_path("a"), O_WRONLY | O_APPEND));
    must(unlink(victim_path("a")));
    must(close((int)must(open(victim_path("a"), O_WRONLY | O_CREAT, 0644))));
    must(close((int)must(open(victim_path("ends so (deleted)"), O_WRONLY | O_CREAT, 0644))));
    int ends_so = (int)must(open(victim_path("ends so (deleted)"), O_RDWR));
    ready();
    go();
    must(write(first, "one ", 4));
    must(write(third, "three", 5));
    char text[32] = "";
    must(read(second, text, 31));
    expect(!strcmp(text, "one three"), "it holds %s", text);
    must(fstat(first, &one));
    must(stat(to, &other));
    expect(one.st_ino == other.st_ino && other.st_size == 9, "the name leads to another");
    must(stat(victim_path("a"), &other));
    expect(other.st_size == 0 && other.st_ino != one.st_ino, "the new one was touched");
    must(write(ends_so, "x", 1));
    must(stat(victim_path("ends so (deleted)"), &other));
    expect(other.st_size == 1, "a name that ends so was taken for a deleted one");
    ok();
}
