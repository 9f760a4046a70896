// Ctrl-K: go to any page, space or address by a few letters of its name.
import { Menu, MenuContent, MenuItem, MenuList, Modal, ModalBody, TextInput } from "@patternfly/react-core";
import { type KeyboardEvent, type ReactElement, useEffect, useState } from "react";
import { useNavigate } from "react-router";
import { get, path, query, V1 } from "../api/client";
import { useRights } from "../api/rights";
import type { AddressRow, RowList, SpaceRow } from "../api/types";
import { pages } from "./pages";
import { pathOf, useSpaceInPath } from "./shell";
import { spaceOf } from "./space";

interface Place {
  title: string;
  hint?: string;
  to: string;
}

const MOST = 8;

/** Spaces, and addresses of the present space, with the letters in their names; undefined until the API has said so. */
function useFound(text: string, place: { namespace: string; space: string } | undefined): Place[] | undefined {
  const [found, setFound] = useState<{ of: string; places: Place[] }>();
  useEffect(() => {
    const stop = new AbortController();
    const limits = { search: text, limit: MOST };
    const spaces = get<RowList<SpaceRow>>(query(`${V1}/rows/addressspaces`, limits), stop.signal).then(({ items }) =>
      items.map((row) => ({ title: row.name, hint: `Space in ${row.namespace}`, to: `${spaceOf(row.namespace, row.name).to}/addresses` })),
    );
    const space = place && spaceOf(place.namespace, place.space);
    const addresses = space
      ? get<RowList<AddressRow>>(query(`${space.api}/rows/addresses`, limits), stop.signal).then(({ items }) =>
          items.map((row) => ({ title: row.address, hint: `Address (${row.type})`, to: path(`${space.to}/addresses`, row.name) })),
        )
      : Promise.resolve([]);
    void Promise.allSettled([addresses, spaces]).then((results) => {
      if (!stop.signal.aborted) setFound({ of: text, places: results.flatMap((result) => (result.status === "fulfilled" ? result.value : [])) });
    });
    return () => stop.abort();
  }, [text, place?.namespace, place?.space]);
  return found?.of === text ? found.places : undefined;
}

export function Palette({ close }: { close: () => void }): ReactElement {
  const place = useSpaceInPath();
  const navigate = useNavigate();
  const rights = useRights(place?.namespace);
  const [text, setText] = useState("");
  const [index, setIndex] = useState(0);
  // Who writes quickly and presses Enter before anything was found goes there once it is.
  const [entered, setEntered] = useState(false);
  const found = useFound(text, place);
  const letters = text.toLowerCase();
  const known: Place[] = pages
    .filter((page) => (page.nav === "space" || page.hint) && (place || !page.path.includes(":namespace")))
    .filter((page) => !/:(?!namespace|space)/.test(page.path))
    .filter((page) => !page.needs || rights.may(page.needs.verb, page.needs.resource))
    .map((page) => ({ title: page.title, hint: page.hint ?? (page.nav === "space" ? `of ${place?.space}` : undefined), to: pathOf(page, place) }))
    .filter((entry) => `${entry.title} ${entry.hint ?? ""}`.toLowerCase().includes(letters));
  const paths = new Set(known.map((entry) => entry.to));
  const entries = [...known, ...(found ?? []).filter((entry) => !paths.has(entry.to))];
  const chosen = Math.min(index, Math.max(entries.length - 1, 0));
  const go = (entry: Place | undefined) => {
    if (!entry) return;
    close();
    void navigate(entry.to);
  };
  useEffect(() => {
    if (!entered || !found) return;
    setEntered(false);
    go(entries[chosen]);
  });
  const key = (event: KeyboardEvent) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) {
      event.preventDefault();
      setIndex((chosen + step + entries.length) % Math.max(entries.length, 1));
    } else if (event.key === "Enter") {
      event.preventDefault();
      if (entries[chosen]) go(entries[chosen]);
      else setEntered(true);
    }
  };
  return (
    <Modal isOpen variant="small" position="top" onClose={close} aria-label="Go to">
      <ModalBody className="em-palette" onKeyDown={key}>
        <TextInput
          type="search"
          role="combobox"
          aria-expanded
          aria-autocomplete="list"
          aria-label="Go to a page, a space or an address"
          aria-controls="palette-list"
          aria-activedescendant={entries[chosen] ? `palette-${chosen}` : undefined}
          placeholder="A page, a space or an address"
          value={text}
          autoFocus
          autoComplete="off"
          onChange={(_, value) => {
            setText(value);
            setIndex(0);
            setEntered(false);
          }}
        />
        <Menu isPlain isScrollable role="listbox" onSelect={(_, id) => go(entries[Number(id)])} selected={chosen}>
          <MenuContent>
            <MenuList id="palette-list" aria-label="Found">
              {entries.map((entry, at) => (
                <MenuItem key={entry.to} id={`palette-${at}`} itemId={at} description={entry.hint} className={at === chosen ? "em-picked" : undefined}>
                  <bdi>{entry.title}</bdi>
                </MenuItem>
              ))}
              {entries.length === 0 && <MenuItem isDisabled>{found ? "Nothing of that name" : "Looking …"}</MenuItem>}
            </MenuList>
          </MenuContent>
        </Menu>
      </ModalBody>
    </Modal>
  );
}
