/* A working directory that was removed is still one: nothing can be made in it, and its parent can be reached. */
#include "victim.h"

int main(void) {
    char name[4096];
    must(chdir(getenv("VICTIM")));
    must(mkdir("gone", 0755));
    must(chdir("gone"));
    must(rmdir("../gone"));
    ready();
    go();
    expect(getcwd(name, sizeof name) == NULL && errno == ENOENT, "the directory is back: %s", name);
    expect(open("file", O_CREAT | O_WRONLY, 0644) == -1 && errno == ENOENT, "something was made in it");
    expect(chdir(getenv("VICTIM")) == 0 && access("gone", F_OK) == -1, "it has a name again");
    ok();
}
