/* A file that was renamed, and one with two names, while open. */
#include "victim.h"

int main(void) {
    char to[4096];
    int fd = (int)must(open(victim_path("before"), O_RDWR | O_CREAT, 0644));
    must(write(fd, "same", 4));
    snprintf(to, sizeof to, "%s", victim_path("after"));
    must(rename(victim_path("before"), to));
    int two = (int)must(open(victim_path("first"), O_RDWR | O_CREAT, 0644));
    snprintf(to, sizeof to, "%s", victim_path("second"));
    must(link(victim_path("first"), to));
    must(unlink(victim_path("first")));
    ready();
    go();
    must(write(fd, " file", 5));
    must(write(two, "linked", 6));
    char text[32] = "";
    int again = (int)must(open(victim_path("after"), O_RDONLY));
    must(read(again, text, 31));
    expect(!strcmp(text, "same file"), "it holds %s", text);
    again = (int)must(open(victim_path("second"), O_RDONLY));
    memset(text, 0, sizeof text);
    must(read(again, text, 31));
    expect(!strcmp(text, "linked"), "the other holds %s", text);
    ok();
}
