/* The programs that sessions run under their interpreters: texts, put into the workspace's private tmpfs. */
#ifndef BUNSHIN_INIT_DRIVERS_H
#define BUNSHIN_INIT_DRIVERS_H

/*
 * bash, interactive so that an interrupt means "back to the next command" and not the end. It reads one line a call from
 * its standard input; the command itself comes in a file, so nothing is ever glued to it. __bunshin_load keeps $? as the
 * last command left it; __bunshin_end reports status, directory and exported variables through a FIFO (SHELL_END) and, for
 * state digests, all else of its state (SHELL_REPORT: traps of three kinds are not to be seen inside a function);
 * __bunshin_leave goes from a directory that was removed to the nearest one that is left.
 */
#define SHELL_END "__bunshin_end $? p\n"
#define SHELL_REPORT                                                                                                   \
    "__bunshin_status=$?; builtin trap -p DEBUG ERR RETURN 2>/dev/null >|" INIT_PRIVATE "/shell.traps; "               \
    "__bunshin_end \"$__bunshin_status\" \"$@\" r\n"

static const char shell_driver[] =
    "PS1= PS2= PS4='+ '\n"
    "set +o history +H\n"
    "unset HISTFILE MAILCHECK TMOUT PROMPT_COMMAND\n"
    "shopt -u checkwinsize\n"
    "__bunshin_end() {\n"
    "  builtin unset -v __bunshin_status 2>/dev/null\n"
    "  { builtin printf '%s\\0%d\\0%s\\0' \"${!#}\" \"$1\" \"${PWD-}\"; builtin export -p; [[ ${!#} != r ]] || __bunshin_state \"${@:2:$#-2}\"; } 2>/dev/null >" INIT_PRIVATE "/shell.status\n"
    "  return \"$1\"\n"
    "}\n"
    "__bunshin_state() {\n"
    "  builtin printf '\\0'; builtin printf '%q ' \"$@\"; builtin printf '\\0%s\\0' \"${!-}\"\n"
    "  builtin declare -p; builtin printf '\\0'\n"
    "  builtin declare -f; builtin declare -F; builtin alias -p; builtin shopt -p; builtin set +o; builtin trap -p; builtin enable -n\n"
    "  builtin complete -p; builtin history; builtin dirs -l -p; builtin printf '\\0end\\0'\n"
    "}\n"
    "__bunshin_leave() {\n"
    "  local to=$PWD\n"
    "  until builtin cd -- \"$to\" 2>/dev/null; do\n"
    "    case $to in /*) to=${to%/*}; to=${to:-/} ;; *) to=/ ;; esac\n"
    "  done\n"
    "  return \"$1\"\n"
    "}\n"
    "builtin trap '__bunshin_end $? x' EXIT\n";

/*
 * python: reads one line a call from descriptor 0, moved away at once. Runs the code in one lasting namespace; the value
 * of a last expression is shown as at a prompt. An interrupt raises KeyboardInterrupt in the code, not here.
 */
static const char python_driver[] =
    "def __bunshin_main():\n"
    "    import ast, builtins, linecache, os, signal, sys, traceback, types\n"
    "    lines = os.fdopen(os.dup(0), 'rb', buffering=0)\n"
    "    os.set_inheritable(lines.fileno(), False)\n"
    "    null = os.open('/dev/null', os.O_RDWR)\n"
    "    os.dup2(null, 0); os.dup2(null, 1); os.dup2(null, 2)\n"
    "    if null > 2: os.close(null)\n"
    "    sys.stdin = open(0, 'r', closefd=False)\n"
    "    sys.stdout = open(1, 'w', closefd=False, buffering=1, encoding='utf-8', errors='backslashreplace')\n"
    "    sys.stderr = open(2, 'w', closefd=False, buffering=1, encoding='utf-8', errors='backslashreplace')\n"
    "    main = types.ModuleType('__main__')\n"
    "    main.__builtins__ = builtins\n"
    "    sys.modules['__main__'] = main\n"
    "    sys.argv = ['']\n"
    "    if '' not in sys.path: sys.path.insert(0, '')\n"
    "    space = main.__dict__\n"
    "    signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
    "    count = 0\n"
    "    def show(kind, value, trace):\n"
    "        while trace is not None and trace.tb_frame.f_code.co_filename == __file__:\n"
    "            trace = trace.tb_next\n"
    "        traceback.print_exception(kind, value, trace)\n"
    "    while True:\n"
    "        line = b''\n"
    "        while not line.endswith(b'\\n'):\n"
    "            part = lines.read(1)\n"
    "            if not part: os._exit(0)\n"
    "            line += part\n"
    "        number = line.decode().strip()\n"
    "        base = '" INIT_PRIVATE "/python.'\n"
    "        with open(base + 'command', 'rb') as source: text = source.read().decode('utf-8', 'surrogateescape')\n"
    "        for target, name in ((1, 'stdout'), (2, 'stderr')):\n"
    "            fd = os.open(base + name, os.O_WRONLY)\n"
    "            os.dup2(fd, target); os.close(fd)\n"
    "        count += 1\n"
    "        name = '<call-%d>' % count\n"
    "        status = 0\n"
    "        try:\n"
    "            signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    "            try:\n"
    "                linecache.cache[name] = (len(text), None, text.splitlines(True), name)\n"
    "                tree = ast.parse(text, name)\n"
    "                last = None\n"
    "                if tree.body and isinstance(tree.body[-1], ast.Expr):\n"
    "                    last = ast.Interactive([tree.body.pop()])\n"
    "                if tree.body: exec(compile(tree, name, 'exec'), space)\n"
    "                if last is not None: exec(compile(last, name, 'single'), space)\n"
    "            finally:\n"
    "                signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
    "        except SystemExit as stop:\n"
    "            code = stop.code\n"
    "            status = 0 if code is None else code if isinstance(code, int) else 1\n"
    "            if code is not None and not isinstance(code, int): print(code, file=sys.stderr)\n"
    "        except BaseException:\n"
    "            status = 1\n"
    "            show(*sys.exc_info())\n"
    "        for stream in (sys.stdout, sys.stderr):\n"
    "            try: stream.flush()\n"
    "            except Exception: pass\n"
    "        null = os.open('/dev/null', os.O_WRONLY)\n"
    "        os.dup2(null, 1); os.dup2(null, 2); os.close(null)\n"
    "        try: cwd = os.getcwd()\n"
    "        except OSError: cwd = ''\n"
    "        with open(base + 'status', 'wb', buffering=0) as report:\n"
    "            report.write(b'%s\\0%d\\0%s\\0' % (number.encode(), status & 255, os.fsencode(cwd)))\n"
    "__bunshin_main()\n";

#endif
