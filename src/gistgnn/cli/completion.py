"""A file with which a shell completes commands, options and their values.

It is written once, so that a press of the tab key does not start Python.
"""

from gistgnn.cli.options import Parser, choices_shown

_SCRIPT = """\
# For bash: source this file. For zsh: autoload -U bashcompinit && bashcompinit, then source it.
_gistgnn() {{
    local words current="${{COMP_WORDS[COMP_CWORD]}}" previous="${{COMP_WORDS[COMP_CWORD-1]}}"
    case "${{COMP_WORDS[1]}} $previous" in
{values}
    *)  case "${{COMP_WORDS[1]}}" in
{options}
        esac ;;
    esac
    [ "$COMP_CWORD" -eq 1 ] && words="{commands}"
    COMPREPLY=($(compgen -W "$words" -- "$current"))
}}
complete -o default -F _gistgnn gistgnn
"""


def completion_script(parser: Parser) -> str:
    """Return the file for bash and zsh; where it knows no word, the shell completes file names.

    Args:
        parser: that of all commands.
    """
    values = []
    options = []
    commands = parser.commands.choices
    for name, command in commands.items():
        names = [word for option in command.options for word in option.option_strings]
        if command.commands is not None:
            names += command.commands.choices
        options.append(f'        {name}) words="{" ".join(names)}" ;;')
        for option in command.options:
            if choices := choices_shown(option):
                patterns = "|".join(f'"{name} {word}"' for word in option.option_strings)
                values.append(f'    {patterns}) words="{" ".join(choices)}" ;;')
    root = [word for option in parser.options for word in option.option_strings]
    return _SCRIPT.format(
        values="\n".join(values), options="\n".join(options), commands=" ".join([*commands, *root])
    )
