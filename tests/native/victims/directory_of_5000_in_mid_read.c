/* A listing of 5,000 entries goes on from where it was, and can go back to where it had been: every entry once. */
#include "victim.h"
#include <dirent.h>

enum { COUNT = 5000 };

static char seen[COUNT];

static int number_of(const struct dirent *entry) {
    int number = -1;
    if (sscanf(entry->d_name, "entry %d with a name of some length", &number) == 1)
        return number;
    return -1;
}

static int read_on(DIR *listing, int most) {
    int count = 0;
    for (struct dirent *entry; count < most && (entry = readdir(listing));) {
        int number = number_of(entry);
        if (number < 0)
            continue;
        expect(!seen[number], "entry %d twice", number);
        seen[number] = 1;
        count++;
    }
    return count;
}

int main(void) {
    must(mkdir(victim_path("dir"), 0755));
    int dir = (int)must(open(victim_path("dir"), O_RDONLY | O_DIRECTORY));
    for (int i = 0; i < COUNT; i++) {
        char name[64];
        snprintf(name, sizeof name, "entry %d with a name of some length", i);
        close((int)must(openat(dir, name, O_CREAT | O_WRONLY, 0644)));
    }
    DIR *listing = opendir(victim_path("dir")), *other = opendir(victim_path("dir"));
    expect(listing && other, "no listing");
    int count = read_on(listing, 1777);
    for (int i = 0; i < 1000; i++)
        expect(readdir(other), "it ends early");
    long place = telldir(other);
    struct dirent *entry = readdir(other);
    expect(entry, "it ends early");
    char after[300];
    snprintf(after, sizeof after, "%s", entry->d_name);
    for (int i = 0; i < 2000; i++)
        expect(readdir(other), "it ends early");
    ready();
    go();
    count += read_on(listing, COUNT + 1);
    expect(count == COUNT, "%d entries", count);
    seekdir(other, place);
    entry = readdir(other);
    expect(entry && !strcmp(entry->d_name, after), "at that place is %s, not %s", entry ? entry->d_name : "nothing", after);
    memset(seen, 0, sizeof seen);
    rewinddir(other);
    count = read_on(other, COUNT + 1);
    expect(count == COUNT, "%d entries from the start", count);
    ok();
}
