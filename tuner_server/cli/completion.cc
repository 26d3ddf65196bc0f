#include "tuner_server/cli/completion.h"

#include <functional>

#include "deploy/support/strings.h"

namespace tilewright::cli {
namespace {

using support::StrCat;

// Calls `fn` with each command and the words that lead to it ("modules fetch"; "" for the root).
void ForEachCommand(const CompletionCommand& command, const std::string& path,
                    const std::function<void(const CompletionCommand&, const std::string&)>& fn) {
  fn(command, path);
  for (const CompletionCommand& child : command.commands) {
    ForEachCommand(child, path.empty() ? child.name : path + " " + child.name, fn);
  }
}

std::string OneLineOf(const std::string& text) { return text.substr(0, text.find('\n')); }

// Within single quotes of bash and zsh.
std::string ShellQuoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

std::string FishQuoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'' || c == '\\') out += '\\';
    out += c;
  }
  return out + "'";
}

std::vector<std::string> WordsOf(const CompletionCommand& command) {
  std::vector<std::string> words;
  for (const CompletionCommand& child : command.commands) words.push_back(child.name);
  for (const CompletionFlag& flag : command.flags) {
    words.insert(words.end(), flag.names.begin(), flag.names.end());
  }
  return words;
}

// The words that come before: which command they name. A word that is no command of the path so far
// is an argument or a flag's value.
std::string PathCases(const CompletionCommand& root) {
  std::string cases;
  ForEachCommand(root, "", [&cases](const CompletionCommand& command, const std::string& path) {
    for (const CompletionCommand& child : command.commands) {
      cases += StrCat("      ", ShellQuoted(path + "/" + child.name),
                      ") path=", ShellQuoted(path.empty() ? child.name : path + " " + child.name),
                      " ;;\n");
    }
  });
  return cases;
}

std::string Bash(const CompletionCommand& root) {
  std::string values, words;
  ForEachCommand(root, "", [&](const CompletionCommand& command, const std::string& path) {
    words += StrCat("    ", ShellQuoted(path),
                    ") words=", ShellQuoted(support::Join(WordsOf(command), " ")), " ;;\n");
    for (const CompletionFlag& flag : command.flags) {
      if (!flag.takes_value) continue;
      for (const std::string& name : flag.names) {
        values +=
            StrCat("    ", ShellQuoted(path + "/" + name),
                   ") values=", ShellQuoted(support::Join(flag.values, " ")), "; takes=1 ;;\n");
      }
    }
  });
  return StrCat(
      "# bash completion for tilewright; made by 'tilewright completion bash'\n",
      "_tilewright() {\n  local cur prev path='' words='' values='' takes='' i\n",
      "  cur=${COMP_WORDS[COMP_CWORD]}\n  prev=${COMP_WORDS[COMP_CWORD-1]}\n",
      "  for ((i = 1; i < COMP_CWORD; i++)); do\n    case \"$path/${COMP_WORDS[i]}\" in\n",
      PathCases(root), "    esac\n  done\n  case \"$path/$prev\" in\n", values, "  esac\n",
      "  if [ -n \"$takes\" ]; then\n    COMPREPLY=($(compgen -W \"$values\" -- \"$cur\"))\n",
      "    return\n  fi\n  case \"$path\" in\n", words, "  esac\n",
      "  COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n}\n",
      "complete -o bashdefault -o default -F _tilewright tilewright\n");
}

std::string Zsh(const CompletionCommand& root) {
  std::string cases, values;
  ForEachCommand(root, "", [&](const CompletionCommand& command, const std::string& path) {
    std::string list;
    // _describe splits at the first colon that is not escaped.
    const auto add = [&list](const std::string& name, const std::string& what) {
      list += " " + ShellQuoted(name + ":" + OneLineOf(what));
    };
    for (const CompletionCommand& child : command.commands) add(child.name, child.what);
    for (const CompletionFlag& flag : command.flags) {
      for (const std::string& name : flag.names) add(name, flag.what);
      for (const std::string& name : flag.names) {
        if (!flag.takes_value) continue;
        values += StrCat("    ", ShellQuoted(path + "/" + name), ") takes=1; values=(",
                         support::Join(flag.values, " "), ") ;;\n");
      }
    }
    cases += StrCat("    ", ShellQuoted(path), ") entries=(", list, " ) ;;\n");
  });
  return StrCat("#compdef tilewright\n# zsh completion; made by 'tilewright completion zsh'\n",
                "_tilewright() {\n  local path='' takes='' word\n  local -a entries values\n",
                "  for word in \"${(@)words[2,CURRENT-1]}\"; do\n    case \"$path/$word\" in\n",
                PathCases(root), "    esac\n  done\n", "  case \"$path/${words[CURRENT-1]}\" in\n",
                values, "  esac\n",
                "  if [[ -n $takes ]]; then\n    if (( $#values )); then compadd -a values; else "
                "_files; fi\n    return\n  fi\n  case \"$path\" in\n",
                cases, "  esac\n  _describe 'tilewright' entries\n",
                "  [[ $words[CURRENT] == -* ]] || _files\n}\n", "compdef _tilewright tilewright\n");
}

std::string Fish(const CompletionCommand& root) {
  std::string lines;
  ForEachCommand(root, "", [&lines](const CompletionCommand& command, const std::string& path) {
    const std::string when = "__tilewright_at " + FishQuoted(path);
    const std::string start = "complete -c tilewright -n " + FishQuoted(when);
    for (const CompletionCommand& child : command.commands) {
      lines += StrCat(start, " -f -a ", FishQuoted(child.name), " -d ",
                      FishQuoted(OneLineOf(child.what)), "\n");
    }
    for (const CompletionFlag& flag : command.flags) {
      std::string line = start;
      for (const std::string& name : flag.names) {
        line += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
      }
      if (flag.takes_value) line += " -r";
      if (!flag.values.empty()) line += " -f -a " + FishQuoted(support::Join(flag.values, " "));
      lines += line + " -d " + FishQuoted(OneLineOf(flag.what)) + "\n";
    }
  });
  return StrCat(
      "# fish completion for tilewright; made by 'tilewright completion fish'\n",
      "function __tilewright_at\n  set -l path ''\n",
      "  for word in (commandline -opc)[2..-1]\n    switch \"$path/$word\"\n",
      [&root] {
        std::string cases;
        ForEachCommand(
            root, "", [&cases](const CompletionCommand& command, const std::string& path) {
              for (const CompletionCommand& child : command.commands) {
                cases += StrCat(
                    "      case ", FishQuoted(path + "/" + child.name), "\n        set path ",
                    FishQuoted(path.empty() ? child.name : path + " " + child.name), "\n");
              }
            });
        return cases;
      }(),
      "    end\n  end\n  test \"$path\" = \"$argv[1]\"\nend\n", lines);
}

}  // namespace

absl::StatusOr<std::string> CompletionScript(const CompletionCommand& root,
                                             std::string_view shell) {
  if (shell == "bash") return Bash(root);
  if (shell == "zsh") return Zsh(root);
  if (shell == "fish") return Fish(root);
  return support::InvalidArgument("cli.usage.shell",
                                  "expected bash, zsh or fish, found " + support::Quote(shell));
}

}  // namespace tilewright::cli
