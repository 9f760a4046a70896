// The text of a query, with names that go on as they are written.
import { TextArea } from "@patternfly/react-core";
import { type KeyboardEvent, type ReactElement, type RefObject, useId, useState } from "react";
import { type Choice, complete, type Completion, type Relation } from "./sql-completion";

const LINES = { least: 5, most: 20 };

export function SqlEditor({ sql, change, editor, relations, run }: {
  sql: string;
  change: (sql: string) => void;
  editor: RefObject<HTMLTextAreaElement | null>;
  relations: Relation[];
  run: () => void;
}): ReactElement {
  const id = useId();
  const [open, setOpen] = useState<Completion & { left: number; top: number }>();
  const [chosen, setChosen] = useState(0);
  const propose = (text: string, at: number, all = false) => {
    const found = complete(text, at, relations, all);
    setChosen(0);
    setOpen(found && editor.current ? { ...found, ...placeOf(editor.current, text, found.from) } : undefined);
  };
  const take = (choice: Choice) => {
    const element = editor.current;
    if (!element || !open) return;
    const end = open.from + choice.text.length;
    change(sql.slice(0, open.from) + choice.text + sql.slice(element.selectionEnd));
    setOpen(undefined);
    requestAnimationFrame(() => {
      element.focus();
      element.setSelectionRange(end, end);
    });
  };
  const keys = (event: KeyboardEvent<HTMLTextAreaElement>) => {
    const isControl = event.ctrlKey || event.metaKey;
    if (isControl && event.key === "Enter") {
      event.preventDefault();
      setOpen(undefined);
      run();
    } else if (event.ctrlKey && event.key === " ") {
      event.preventDefault();
      propose(sql, event.currentTarget.selectionStart, true);
    } else if (open && (event.key === "ArrowDown" || event.key === "ArrowUp")) {
      event.preventDefault();
      setChosen((chosen + (event.key === "ArrowDown" ? 1 : open.choices.length - 1)) % open.choices.length);
    } else if (open && (event.key === "Tab" || event.key === "Enter") && !event.shiftKey) {
      event.preventDefault();
      take(open.choices[chosen]!);
    } else if (open && event.key === "Escape") {
      event.preventDefault();
      setOpen(undefined);
    } else if (open && (event.key.startsWith("Arrow") || event.key === "Home" || event.key === "End")) {
      setOpen(undefined);
    }
  };
  return (
    <div className="em-sql-editor">
      <TextArea
        ref={editor}
        className="em-yaml"
        aria-label="Query"
        aria-autocomplete="list"
        aria-controls={open ? id : undefined}
        aria-activedescendant={open ? `${id}-${chosen}` : undefined}
        placeholder="SELECT device, max(temperature) AS top FROM readings GROUP BY device ORDER BY top DESC"
        value={sql}
        onChange={(event, value) => {
          change(value);
          propose(value, event.target.selectionStart);
        }}
        onKeyDown={keys}
        onBlur={() => setOpen(undefined)}
        onScroll={() => setOpen(undefined)}
        rows={Math.max(LINES.least, Math.min(LINES.most, sql.split("\n").length + 1))}
        resizeOrientation="vertical"
        spellCheck={false}
        autoComplete="off"
        autoCapitalize="off"
      />
      {open && (
        <ul className="em-sql-choices" id={id} role="listbox" aria-label="Names" style={{ insetInlineStart: open.left, insetBlockStart: open.top }}>
          {open.choices.map((choice, index) => (
            <li
              key={`${choice.about} ${choice.name}`}
              id={`${id}-${index}`}
              role="option"
              aria-selected={index === chosen}
              // Before the editor loses the focus, which closes the list.
              onMouseDown={(event) => {
                event.preventDefault();
                take(choice);
              }}
            >
              <span>{choice.name}</span> <span className="em-figure-below">{choice.about}</span>
            </li>
          ))}
        </ul>
      )}
      <p className="em-total" role="status">{open ? `${open.choices.length === 1 ? "One name goes" : `${open.choices.length} names go`} on: arrows choose, Tab takes.` : "Ctrl Space lists names."}</p>
    </div>
  );
}

/** Where a character of a textarea is, in its frame; a hidden text of the same form is measured. */
function placeOf(element: HTMLTextAreaElement, text: string, at: number): { left: number; top: number } {
  const style = getComputedStyle(element);
  const mirror = document.createElement("div");
  for (const name of ["font", "letterSpacing", "padding", "border", "lineHeight", "tabSize", "boxSizing"] as const) mirror.style[name] = style[name];
  Object.assign(mirror.style, { position: "absolute", visibility: "hidden", whiteSpace: "pre-wrap", overflowWrap: "break-word", inlineSize: `${element.offsetWidth}px` });
  mirror.textContent = text.slice(0, at);
  const mark = mirror.appendChild(document.createElement("span"));
  mark.textContent = "\u200b";
  document.body.appendChild(mirror);
  const line = Number.parseFloat(style.lineHeight) || 20;
  const place = { left: Math.min(mark.offsetLeft, Math.max(0, element.offsetWidth - 240)), top: mark.offsetTop + line - element.scrollTop + 4 };
  mirror.remove();
  return place;
}
