# Prints lines of a log: a user, what was seen, and whether it was clicked.
import sys

begin, count = int(sys.argv[1]), int(sys.argv[2])
for n in range(begin, begin + count):
    seen = [(n * 7 + k * k) % 30 for k in range(n % 3 + 1)]
    print("%d\t%s\t%d" % (n % 10, ",".join(map(str, seen)), (n % 10 + sum(seen)) % 2))
