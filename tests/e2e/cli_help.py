#!/usr/bin/env python3
"""What people see before they run anything: --help of every command, its examples, shell completion.

    cli_help.py [--build DIR]        DIR (default: TILEWRIGHT_BUILD_DIR or build/release) has bin/
"""

import re
import shlex
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
import cli_case  # noqa: E402
from cli_case import USAGE  # noqa: E402

SHELLS = ("bash", "zsh", "fish")


class Help(cli_case.Case):
    def help(self, *path):
        return self.good(*path, "--help")

    def commands(self, *path):
        """Every path of commands below this one, itself included."""
        text = self.help(*path)
        yield path, text
        below = re.search(r"^(?:SUBCOMMANDS|Subcommands):\n((?:  .*\n)+)", text, re.M)
        for name in re.findall(r"^  (\w[\w-]*)", below.group(1), re.M) if below else []:
            yield from self.commands(*path, name)

    def complete(self, *words):
        """What bash offers for the last of the words."""
        script = self.good("completion", "bash") + (
            'COMP_WORDS=(tilewright "$@"); COMP_CWORD=$#; _tilewright; printf "%s\\n" "${COMPREPLY[@]}"\n')
        done = subprocess.run(["bash", "-c", script, "bash", *words], capture_output=True, text=True, timeout=60)
        self.assertEqual(done.stderr, "")
        return done.stdout.split()

    def test_every_command_has_examples_that_its_own_help_explains(self):
        seen = 0
        for path, text in self.commands():
            if not path:
                continue
            seen += 1
            where = " ".join(path)
            examples = re.search(r"^Examples:\n((?:  .*\n)+)", text + "\n", re.M)
            self.assertTrue(examples, where + ": no examples")
            joined = re.sub(r"\\\n\s*", "", examples.group(1))  # a command may take several lines
            lines = [line.split("#")[0] for line in joined.splitlines()]
            own = [line for line in lines if ("tilewright " + where) in line]
            self.assertTrue(own, "%s: no example of itself" % where)
            if "SUBCOMMANDS" in text.upper():
                continue  # the examples of a group are of its commands
            for line in own:
                call = line[line.index("tilewright " + where):].rstrip(")")
                for word in shlex.split(re.split(r"\|\||[|>;]", call)[0]):
                    if word.startswith("-") and not word.lstrip("-")[:1].isdigit():
                        self.assertRegex(text, r"(?m)(^|[ ,])%s\b" % re.escape(word.split("=")[0]),
                                         "%s: %s is not in its help" % (where, word))
        self.assertGreater(seen, 40)

    def test_completion_offers_what_there_is(self):
        self.assertIn("modules", self.complete("mod"))
        self.assertEqual(self.complete("modules", "verif"), ["verify"])
        self.assertEqual(sorted(self.complete("jobs", "")[:1]), sorted(["submit"]))
        self.assertIn("--if-newer", self.complete("modules", "fetch", "dqn", "--i"))
        self.assertNotIn("--if-newer", self.complete("modules", "list", "--"))
        self.assertEqual(sorted(self.complete("jobs", "submit", "m.onnx", "--cost-model", "")),
                         ["prior", "random", "xgboost"])
        self.assertEqual(self.complete("tune", "m.onnx", "--target", ""), [], "a value: files, by the shell")
        self.assertEqual(sorted(self.complete("completion", "b")), [], "words, not flags: none is a command")
        # Each command and each flag that a help names is offered.
        for path, text in self.commands():
            offered = set(self.complete(*path, ""))
            flags = {flag for flag in re.findall(r"(?m)^  (?:-\w, ?)?(--[\w-]+)", text)}
            self.assertTrue(flags <= offered, "%s: %s" % (path, flags - offered))

    def test_scripts_are_for_their_shells(self):
        for shell in SHELLS:
            script = self.good("completion", shell)
            for word in ("modules", "if-newer", "explain"):
                self.assertIn(word, script, shell)
            check = {"bash": ["bash", "-n"], "zsh": ["zsh", "-n"], "fish": ["fish", "--no-execute"]}[shell]
            try:
                done = subprocess.run(check, input=script, capture_output=True, text=True, timeout=60)
            except FileNotFoundError:
                continue  # that shell is not here; the script was made all the same
            self.assertEqual((done.returncode, done.stderr), (0, ""), shell)
        self.assertEqual(self.call("completion", "tcsh").returncode, USAGE)


if __name__ == "__main__":
    sys.exit(cli_case.run_cases(sys.modules[__name__]))
