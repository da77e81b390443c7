# start.sh WIDTH HEIGHT [Xvfb argument...]: a display, a window manager and the driver, each in a session of its own.
#
# The last line says what is missing ("missing NAME..."), what failed ("failed WHY"), or the display ("display :N").
width=$1 height=$2
shift 2
here=${0%/*}
cd "$here" || exit 1
await() { # await FILE PID NAME: until the file has something in it, or the process is gone
    waited=0
    until [ -s "$1" ]; do
        kill -0 "$2" 2>/dev/null || { echo "failed $3: $(tail -n 2 "$3.log" | tr '\n' ' ')"; exit 1; }
        [ $((waited += 1)) -lt 1000 ] || { echo "failed $3: it does not come up"; exit 1; }
        sleep 0.02
    done
}

missing=
for program in Xvfb openbox python3 xkbcomp; do
    command -v "$program" >/dev/null || missing="$missing $program"
done
python3 -I -S -c 'import ctypes; ctypes.CDLL("libX11.so.6")' 2>/dev/null || missing="$missing libX11.so.6"
python3 -I -S -c 'import ctypes; ctypes.CDLL("libXtst.so.6")' 2>/dev/null || missing="$missing libXtst.so.6"
[ -z "$missing" ] || { echo "missing$missing"; exit 1; }

rm -f request reply display driver.pid Xvfb_screen0
mkfifo request reply
setsid Xvfb -displayfd 3 -screen 0 "${width}x${height}x24" -fbdir "$here" -nolisten tcp -ac -noreset "$@" \
    3>display >Xvfb.log 2>&1 </dev/null &
await display $! Xvfb
export DISPLAY=":$(cat display)"
setsid openbox --config-file "$here/openbox.xml" --sm-disable >openbox.log 2>&1 </dev/null &
setsid python3 -I -S -B driver.py "$DISPLAY" >driver.log 2>&1 </dev/null &
await driver.pid $! driver
echo "display $DISPLAY"
