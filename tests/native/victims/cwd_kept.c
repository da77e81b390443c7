/* Relative paths start where they did, also after the directory got another name. */
#include "victim.h"

int main(void) {
    char before[4096], after[4096];
    must(chdir(getenv("VICTIM")));
    must(mkdir("old", 0755));
    must(chdir("old"));
    must(rename("../old", "../new"));
    int fd = (int)must(open("here", O_CREAT | O_WRONLY, 0644));
    must(write(fd, "x", 1));
    close(fd);
    expect(getcwd(before, sizeof before) != NULL, "no name");
    ready();
    go();
    expect(getcwd(after, sizeof after) && !strcmp(before, after), "in %s, was in %s", after, before);
    expect(access("here", F_OK) == 0 && access("../new/here", F_OK) == 0, "the file is not here");
    must(mkdir("below", 0755));
    expect(access(victim_path("new/below"), F_OK) == 0, "made elsewhere");
    ok();
}
