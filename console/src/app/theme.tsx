// Dark and light: as the system has it, until the person chooses.
import { createContext, type ReactElement, type ReactNode, useContext, useEffect, useLayoutEffect, useState } from "react";

const KEY = "enmasse.theme";
const system = window.matchMedia("(prefers-color-scheme: dark)");
const Theme = createContext({ dark: false, toggle: (): void => undefined });

export function useTheme(): { dark: boolean; toggle: () => void } {
  return useContext(Theme);
}

function initial(): boolean {
  const chosen = localStorage.getItem(KEY);
  return chosen ? chosen === "dark" : system.matches;
}

function show(dark: boolean): void {
  document.documentElement.classList.toggle("pf-v6-theme-dark", dark);
}

show(initial());

export function Theming({ children }: { children: ReactNode }): ReactElement {
  const [dark, setDark] = useState(initial);
  useEffect(() => {
    const follow = () => localStorage.getItem(KEY) || setDark(system.matches);
    system.addEventListener("change", follow);
    return () => system.removeEventListener("change", follow);
  }, []);
  useLayoutEffect(() => show(dark), [dark]);
  const toggle = () => {
    localStorage.setItem(KEY, dark ? "light" : "dark");
    setDark(!dark);
  };
  return <Theme.Provider value={{ dark, toggle }}>{children}</Theme.Provider>;
}
