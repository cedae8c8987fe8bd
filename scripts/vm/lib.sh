# shellcheck shell=bash
# Sourced by the scripts of this folder: cache, messages, the machine's Debian mirror, an apt of our own.

vm_dir=$(dirname "$(realpath "${BASH_SOURCE[0]}")")
repository=$(realpath "$vm_dir/../..")
cache=${NUMALET_VM_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/numalet/vm}
export vm_dir repository cache

say() { [[ -n ${quiet:-} ]] || printf 'vm: %s\n' "$*" >&2; }
die() { printf 'vm: %s\n' "$*" >&2; exit 125; }
need() {
  local tool
  for tool; do command -v "$tool" >/dev/null || die "no $tool: run scripts/bootstrap --vm"; done
}

# URI of the mirror that this machine's apt uses for SUITE ("" stands for any), else of any Debian suite.
# The security archive is a mirror of its own.
mirror_of() {
  local suite=$1 kind=main
  case $suite in *-security) kind=security;; esac
  # shellcheck disable=SC2016  # the fields are apt's
  apt-get indextargets --format '$(REPO_URI) $(RELEASE) $(ORIGIN)' 'Created-By: Packages' |
    awk -v suite="$suite" -v kind="$kind" '
      $3 != "" && $3 != "Debian" { next }
      $2 == suite { print $1; found = 1; exit }
      (kind == "security") == ($2 ~ /-security$/) && !other { other = $1 }
      END { if (!found && other) print other }'
}
debian_key='[signed-by=/usr/share/keyrings/debian-archive-keyring.gpg]'

# apt-get and apt-cache that see only the given suites and leave the system's own lists and status alone
private_apt() {   # FOLDER SUITE...
  local dir=$1 suite; shift
  mkdir -p "$dir"/{lists/partial,archives/partial}
  : >"$dir/status"; : >"$dir/sources.list"
  for suite; do echo "deb $debian_key $(mirror_of "$suite") $suite main" >>"$dir/sources.list"; done
  apt_options=(-o Dir::Etc::sourcelist="$dir/sources.list" -o Dir::Etc::sourceparts=/dev/null -o Dir::Etc::preferencesparts=/dev/null
    -o Dir::State="$dir" -o Dir::State::status="$dir/status" -o Dir::Cache="$dir"
    -o APT::Sandbox::User=root -o APT::Architecture=amd64 -o Acquire::Languages=none -o Acquire::Retries=3)
  apt-get "${apt_options[@]}" -qq update
}
