# act.sh OPERATIONS: have the driver do them, print what it says, and end with 1 where it refuses.
cd "${0%/*}" || exit 1
read -r pid 2>/dev/null <driver.pid && kill -0 "$pid" 2>/dev/null || { echo "the desktop is gone: its driver does not run"; exit 1; }
exec 3<>request 4<>reply
printf '%s %s\n' "$$" "$1" >&3
while IFS= read -r line <&4; do
    case $line in
    "$$ ok ") exit 0 ;;
    "$$ ok "*) printf '%s\n' "${line#"$$ ok "}"; exit 0 ;;
    "$$ error "*) printf '%s\n' "${line#"$$ error "}"; exit 1 ;;
    esac
done
exit 1
