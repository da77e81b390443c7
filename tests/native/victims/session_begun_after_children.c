/* Parent, child and grandchild: the first two began sessions of their own after the next was born, so each is in another. */
#include "victim.h"

int main(void) {
    int down[2], up[2];
    pid_t ids[2], self = getpid();
    char x;
    must(pipe(down));
    must(pipe(up));
    must(setsid() > 0 || getsid(0) == self ? 0 : -1);
    pid_t first = fork();
    if (first == 0) {
        pid_t second = fork();
        if (second == 0) {
            pid_t third = fork();
            if (third == 0)
                for (;;)
                    pause();
            must(write(up[1], (pid_t[]){getpid(), third}, sizeof ids));
            must(read(down[0], &x, 1));
            must(setsid());
            must(write(up[1], "x", 1));
            for (;;)
                pause();
        }
        must(read(down[0], &x, 1));
        must(setsid());
        must(write(up[1], "x", 1));
        for (;;)
            pause();
    }
    must(read(up[0], ids, sizeof ids));
    must(write(down[1], "xx", 2));
    must(read(up[0], &x, 1));
    must(read(up[0], &x, 1));
    ready();
    go();
    struct kin one = kin_of(first), two = kin_of(ids[0]), three = kin_of(ids[1]);
    expect(one.session == first && one.group == first && one.parent == self, "the first: session %d, parent %d", one.session, one.parent);
    expect(two.session == ids[0] && two.parent == first, "the second: session %d, parent %d", two.session, two.parent);
    expect(three.session == self && three.parent == ids[0] && three.group == self, "the third: session %d, group %d", three.session, three.group);
    kill(ids[1], SIGKILL), kill(ids[0], SIGKILL), kill(first, SIGKILL);
    ok();
}
