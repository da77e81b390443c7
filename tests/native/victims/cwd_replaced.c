/* A working directory that was removed stays empty and nameless, whatever has its name now: another directory, or a file. */
#include "victim.h"
#include <dirent.h>

static bool is_empty(void) {
    DIR *listing = opendir(".");
    struct dirent *entry;
    int count = 0;
    expect(listing, "it cannot be listed");
    while ((entry = readdir(listing)))
        count += entry->d_name[0] != '.';
    closedir(listing);
    return count == 0;
}

int main(void) {
    char here[4096];
    must(mkdir(victim_path("a"), 0755));
    must(mkdir(victim_path("b"), 0755));
    must(mkdir(victim_path("b/inner"), 0755));
    int go_on[2], told[2];
    must(pipe(go_on));
    must(pipe(told));
    pid_t child = (pid_t)must(fork());
    if (!child) {
        char byte;
        must(chdir(victim_path("b/inner")));
        must(write(told[1], "x", 1));
        must(read(go_on[0], &byte, 1));
        expect(is_empty() && !getcwd(here, sizeof here), "the inner one is back");
        _exit(0);
    }
    char byte;
    must(read(told[0], &byte, 1));
    must(chdir(victim_path("a")));
    must(rmdir(victim_path("a")));
    must(mkdir(victim_path("a"), 0755));
    must(close((int)must(open(victim_path("a/new"), O_CREAT | O_WRONLY, 0644))));
    must(rmdir(victim_path("b/inner")));
    must(rmdir(victim_path("b")));
    must(close((int)must(open(victim_path("b"), O_CREAT | O_WRONLY, 0644))));
    ready();
    go();
    expect(is_empty() && !getcwd(here, sizeof here) && errno == ENOENT, "it is back");
    must(write(go_on[1], "x", 1));
    child_ends_well(child);
    expect(access(victim_path("a/new"), F_OK) == 0, "its successor was touched");
    struct stat info;
    must(stat(victim_path("b"), &info));
    expect(S_ISREG(info.st_mode) && info.st_size == 0, "the file was touched");
    must(chdir(victim_path("")));
    struct dirent *entry;
    DIR *listing = opendir(".");
    while ((entry = readdir(listing)))
        expect(!strstr(entry->d_name, "bunshin"), "%s was left", entry->d_name);
    ok();
}
