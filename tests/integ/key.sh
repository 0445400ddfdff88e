#!/bin/bash
# gfs key makes, adds, replaces, removes and lists keys; it never overwrites one by accident,
# never prints a secret and never leaves a file that others can read.
. "$(dirname "$0")/../lib/testlib.sh"

cd "$T"
secret() { sed -n "s/^$1 key=\([0-9a-f]*\) .*/\1/p" "$2"; }
umask 000 # the worst case: modes must come from the program

# new: one line, mode 0600, 32 random bytes; what is there already is left alone.
expect_ok gfs key new user:alice -o alice.key
assert_contains "$output" "made user:alice fingerprint "
assert_equals "$(stat -c %a alice.key)" 600 "mode of a new key"
assert_equals "$(wc -l <alice.key)" 1 "lines of a key file"
[[ $(secret user:alice alice.key) =~ ^[0-9a-f]{64}$ ]] || fail "no key in the key file"
assert_lacks "$output" "$(secret user:alice alice.key)"
before=$(<alice.key)
expect_fail -s 1 gfs key new user:alice -o alice.key
assert_contains "$output" "exists already"
assert_equals "$(<alice.key)" "$before" "the key that was there"
expect_ok gfs key new user:alice -o alice2.key
[ "$(secret user:alice alice.key)" != "$(secret user:alice alice2.key)" ] || fail "same key twice"
expect_fail -s 1 gfs key new user:alice -o no/such/dir/alice.key
assert_contains "$output" "no/such/dir/alice.key"
expect_fail -s 2 gfs key new user:alice
expect_fail -s 2 gfs key new -o x.key
expect_fail -s 2 gfs key
expect_fail -s 2 gfs key frobnicate
assert_contains "$output" "frobnicate"

# Identities.
for bad in alice user: user:.x user:-x "user:a b" user:a/b host: group:x ticket:00 User:x \
	"user:$(printf 'x%.0s' {1..65})" "user:é"; do
	expect_fail -s 2 gfs key new "$bad" -o bad.key
	assert_contains "$output" "no identity" "complaint about '$bad'"
	[ ! -e bad.key ] || fail "a key was made for '$bad'"
done
for good in user:a.b_c-d@e host:node-1.example.org "user:$(printf 'x%.0s' {1..64})"; do
	rm -f good.key
	expect_ok gfs key new "$good" -o good.key
done

# Expiry: durations, dates, never; not the past.
expires() # TEXT: what the key file says
{
	rm -f e.key
	expect_ok gfs key new user:e -o e.key --expires "$1"
	sed -n 's/.* expires=\([^ ]*\).*/\1/p' e.key
}
assert_equals "$(expires never)" never "never"
assert_equals "$(expires 2199-01-31)" 2199-01-31T00:00:00Z "a date"
assert_equals "$(expires 2199-01-31T12:30:00Z)" 2199-01-31T12:30:00Z "a time"
left=$(($(date -d "$(expires 12h)" +%s) - $(date +%s)))
((left > 43100 && left <= 43200)) || fail "--expires 12h is $left seconds"
left=$(($(date -d "$(expires 30d)" +%s) - $(date +%s)))
((left > 2591900 && left <= 2592000)) || fail "--expires 30d is $left seconds"
rm -f e.key
for bad in 0s 2020-01-01 soon 12 -5s 2027-02-30 "" 99999999999d; do
	expect_fail -s 2 gfs key new user:e -o e.key --expires "$bad"
	[ ! -e e.key ] || fail "--expires '$bad' made a key"
done

# add: makes the table, refuses a second key for the same identity unless told, all or nothing.
gfs key new host:n1 -o n1.key >/dev/null
gfs key new user:root --admin -o root.key >/dev/null
expect_ok gfs key add table alice.key n1.key
assert_contains "$output" "added user:alice"
assert_equals "$(stat -c %a table)" 600 "mode of a new table"
assert_equals "$(secret user:alice table)" "$(secret user:alice alice.key)" "alice in the table"
before=$(<table)
expect_fail -s 1 gfs key add table root.key alice2.key
assert_contains "$output" "user:alice"
assert_contains "$output" "--replace"
assert_equals "$(<table)" "$before" "the table after a refusal"
expect_ok gfs key add table root.key alice2.key --replace
assert_equals "$(secret user:alice table)" "$(secret user:alice alice2.key)" "replaced key"
assert_equals "$(wc -l <table)" 3 "lines of the table"
expect_fail -s 1 gfs key add table absent.key
assert_contains "$output" "absent.key"
expect_fail -s 2 gfs key add table
chmod 0644 n1.key
expect_fail -s 1 gfs key add table2 n1.key
assert_contains "$output" "chmod 600"
[ ! -e table2 ] || fail "a table was made from a refused key"
chmod 0600 n1.key

# list: who, fingerprint, dates; the same in JSON. Fingerprints tell keys apart.
expect_ok gfs key list table
assert_contains "$output" "user:alice"
assert_contains "$output" "host:n1"
assert_lacks "$output" "$(secret user:alice table)"
fingerprint() { gfs key list "$1" | awk '{ print $2 }'; }
assert_equals "$(fingerprint table | head -n 1)" "$(fingerprint alice2.key)" "fingerprint"
[ "$(fingerprint alice.key)" != "$(fingerprint alice2.key)" ] || fail "two keys, one fingerprint"
sed 's/host:n1/host:old/; s/expires=[^ ]*/expires=2020-01-01T00:00:00Z/' n1.key >old.key
chmod 0600 old.key
expect_ok gfs key list old.key
assert_contains "$output" EXPIRED
gfs key add table old.key >/dev/null
expect_ok gfs key list --json table
echo "$output" | python3 -c '
import json, sys
rows = {row["identity"]: row for row in json.load(sys.stdin)}
assert sorted(rows) == ["host:n1", "host:old", "user:alice", "user:root"], rows
assert rows["user:root"]["admin"] and not rows["user:alice"]["admin"], rows
assert rows["host:old"]["expired"] and not rows["host:n1"]["expired"], rows
assert rows["host:n1"]["expires"] == "never", rows
assert all(len(row["fingerprint"]) == 19 for row in rows.values()), rows
'
: >empty && chmod 0600 empty
expect_ok gfs key list --json empty
assert_equals "$output" "[]" "an empty table"

# remove: gone; one that is not there is an error and changes nothing.
expect_ok gfs key remove table user:alice
assert_equals "$(secret user:alice table)" "" "removed key"
before=$(<table)
expect_fail -s 1 gfs key remove table host:n1 user:alice
assert_contains "$output" "user:alice is not in table"
assert_equals "$(<table)" "$before" "the table after a refusal"
expect_fail -s 1 gfs key remove absent user:alice
expect_fail -s 2 gfs key remove table

# A table with a broken line is not touched; the message has the line, not its text.
printf 'user:bob key=1234secret\n' >>table
before=$(<table)
expect_fail -s 1 gfs key add table alice.key
assert_contains "$output" "table:4: "
assert_lacks "$output" 1234secret
assert_equals "$(<table)" "$before" "a broken table"
assert_equals "$(find . -name '*.new')" "" "temporary files left"
